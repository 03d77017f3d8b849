"""What a rule found: one sentence, what was expected, what came, and what to change.

Findings travel: a silo sends its first one to the aggregator as a ``Refusal``, logs keep their rule
names. So they hold public terms only: ids, digests, limits of a threat model; never a record count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from privacy.errors import ConfigurationError, SealsumError

MAX_TEXT = 500
"""Characters of a field, as ``privacy.wire.messages.Refusal`` carries them."""
_RULE = re.compile(r"[a-z][a-z0-9_.]{0,63}")


@dataclass(frozen=True)
class Finding:
    """One rule that says no."""

    rule: str
    sentence: str
    expected: str
    got: str
    remedy: str

    def __post_init__(self) -> None:
        if not _RULE.fullmatch(self.rule):
            raise ValueError(f"rule: expected lower-case words joined by _ or ., got {self.rule!r}")
        for field in fields(self):
            text = str(getattr(self, field.name))
            if len(text) > MAX_TEXT:
                object.__setattr__(self, field.name, text[: MAX_TEXT - 1] + "…")

    def __str__(self) -> str:
        return (
            f"{self.rule}: {self.sentence}\n"
            f"    expected  {self.expected}\n"
            f"    got       {self.got}\n"
            f"    to do     {self.remedy}"
        )


def another_round(what: str, expected: str, got: str) -> Finding:
    """What was signed belongs to another round's context."""
    return Finding(
        "another_round",
        f"the {what} was signed for another round",
        f"context {expected}",
        got,
        "send what belongs to this round",
    )


class _WithFindings(SealsumError):
    """An error that carries every finding, not only the first."""

    def __init__(self, subject: str, findings: Iterable[Finding]) -> None:
        self.subject = subject
        self.findings: tuple[Finding, ...] = tuple(findings)
        if not self.findings:
            raise ValueError("findings: expected at least one; nothing found is no refusal")
        super().__init__(subject, self.findings)

    def __str__(self) -> str:
        count = len(self.findings)
        head = f"{self.subject}: refused by {count} rule{'s' if count > 1 else ''}"
        return "\n".join([head, *(f"  {line}" for item in self.findings for line in str(item).splitlines())])


class PolicyRefusal(_WithFindings):
    """A threat model says no; nothing has happened."""

    exit_code = 3


class PolicyInvalid(_WithFindings, ConfigurationError):
    """A threat model contradicts itself, asks for what nothing enforces, or is not one."""

    exit_code = 78
