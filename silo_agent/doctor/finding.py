"""One finding of the doctor: what was looked at, what was expected, what came, what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Literal

from privacy.errors import ConfigurationError, PeerFault, SealsumError

Verdict = Literal["ok", "warning", "fault", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What one check came to."""

    check: str
    """``dns``, ``proxy``, ``tls``, …; with the server's name behind a colon where there are several."""
    verdict: Verdict
    looked_at: str
    expected: str
    got: str
    remedy: str = ""
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


@dataclass
class Report:
    """Findings as they come, in order."""

    findings: list[Finding] = field(default_factory=list)

    def ok(self, check: str, looked_at: str, expected: str, got: str) -> None:
        """It is as it must be."""
        self.findings.append(Finding(check, "ok", looked_at, expected, got))

    def warn(self, check: str, looked_at: str, expected: str, got: str, remedy: str) -> None:
        """It works, or may work, and will give trouble."""
        self.findings.append(Finding(check, "warning", looked_at, expected, got, remedy))

    def fault(self, check: str, looked_at: str, expected: str, got: str, remedy: str, exit_code: int) -> None:
        """The agent cannot work like this."""
        self.findings.append(Finding(check, "fault", looked_at, expected, got, remedy, exit_code))

    def skip(self, check: str, looked_at: str, why: str) -> None:
        """It could not be looked at, because of an earlier fault."""
        self.findings.append(Finding(check, "skipped", looked_at, "", why))

    def failed(self, check: str) -> bool:
        """Whether a check of that name has found a fault."""
        return any(one.check == check and one.verdict == "fault" for one in self.findings)

    @property
    def exit_code(self) -> int:
        """Of the first fault: local ones come first."""
        return next((one.exit_code for one in self.findings if one.verdict == "fault"), 0)

    def judging(self, check: str, looked_at: str, expected: str, remedy: str = "") -> Judging:
        """A ``SealsumError`` or ``OSError`` in the block is a fault, and the block ends there."""
        return Judging(self, check, looked_at, expected, remedy)


@dataclass(frozen=True)
class Judging:
    """A block whose errors are findings; an error's own words say what to do, else ``remedy`` does."""

    report: Report
    check: str
    looked_at: str
    expected: str
    remedy: str

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Take note of what went wrong, if it is of a kind to be noted."""
        if isinstance(error, SealsumError):
            words, _, own = " ".join(str(error).split()).partition("; ")
            told, code = own or self.remedy or _WHOM_TO_ASK, error.exit_code
        elif isinstance(error, OSError):
            words, told, code = error.strerror or str(error), self.remedy or _WHOM_TO_ASK, LOCAL
        else:
            return False
        self.report.fault(self.check, self.looked_at, self.expected, words, told, code)
        return True


REMOTE = PeerFault.exit_code
LOCAL = ConfigurationError.exit_code
_WHOM_TO_ASK = "see docs/operating-a-silo.md, or ask the federation's operator"
