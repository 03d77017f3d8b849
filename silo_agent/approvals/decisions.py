"""The decisions about each job as they lie on disk: signed, numbered, only ever added to.

    approvals/<job digest>/0001.json    a SignedApproval, canonical, mode 0600

Each is read from disk whenever it is asked for; only the check of a signature over the very same bytes is
remembered. Whether a decision counts is ``standing``'s to judge.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from policies.findings import Finding, PolicyRefusal
from privacy.approval import JobApproval, SignedApproval, open_approval
from privacy.canonical import canonical_bytes, parse_canonical, sha256_hex
from privacy.errors import MalformedMessage, SignatureRejected
from privacy.ids import Digest
from silo_agent.durable import private_directory, sync_directory

_MAX_BYTES = 1 << 17
_REMEMBERED = 4096


@dataclass(frozen=True)
class Decision:
    """One decision whose signature holds under the key it names."""

    file: str
    """Relative to the state directory."""
    approval: JobApproval
    verify_key: str
    digest: Digest
    """SHA-256 of its text, by which the silo's log names it."""


class Decisions:
    """All decisions of one silo; ``logged`` are those that must be there, by job (``recording``)."""

    def __init__(self, state_dir: Path, logged: Mapping[Digest, frozenset[Digest]]) -> None:
        self._state_dir = state_dir
        self._logged = logged
        self._most: dict[Digest, int] = {}

    def about(self, job: Digest) -> tuple[Decision, ...]:
        """What was decided about a job, in order.

        Raises:
            PolicyRefusal: a file is missing, or is not as it was signed; it is named.
        """
        decisions = []
        for number, file in enumerate(self._files(job), start=1):
            name = f"approvals/{job}/{file}"
            if file != _file(number):
                raise damaged(name, f"{_file(number)} before it", "none: a file was removed or renamed")
            decisions.append(_opened(_read(self._state_dir / name, name), name))
        removed = self._logged.get(job, frozenset()) - {decision.digest for decision in decisions}
        if removed or len(decisions) < self._most.get(job, 0):
            name = f"approvals/{job}/{_file(len(decisions) + 1)}"
            raise damaged(
                name, "every decision that was taken, as the silo's log names them", "none: removed"
            )
        self._most[job] = len(decisions)
        return tuple(decisions)

    def signed(self, job: Digest) -> tuple[SignedApproval, ...]:
        """The same, as signed, for the evidence.

        Raises:
            PolicyRefusal: as ``about``.
        """
        self.about(job)
        return tuple(
            SignedApproval.model_validate(
                parse_canonical((self._directory(job) / file).read_bytes(), _MAX_BYTES)
            )
            for file in self._files(job)
        )

    def add(self, job: Digest, signed: SignedApproval) -> str:
        """Store a decision durably, after all others; returns the file's name. Never replaces one."""
        directory = private_directory(self._directory(job))
        scratch = directory / f".{os.getpid()}.tmp"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(canonical_bytes(signed))
            file.flush()
            os.fsync(file.fileno())
        try:
            path = self._linked(job, scratch)
        finally:
            scratch.unlink()
        sync_directory(directory)
        return str(path.relative_to(self._state_dir))

    def _linked(self, job: Digest, scratch: Path) -> Path:
        """A link fails where the name is taken: of two who decide at once, neither overwrites the other."""
        number = len(self._files(job)) + 1
        while True:
            path = self._directory(job) / _file(number)
            try:
                path.hardlink_to(scratch)
            except FileExistsError:
                number += 1
            else:
                return path

    def _files(self, job: Digest) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._directory(job)) if name.endswith(".json"))
        except FileNotFoundError:
            return []

    def _directory(self, job: Digest) -> Path:
        return self._state_dir / "approvals" / job


def _file(number: int) -> str:
    return f"{number:04d}.json"


def damaged(name: str, expected: str, got: str) -> PolicyRefusal:
    """A stored decision that is not what somebody signed: nothing is trained on it."""
    return PolicyRefusal(
        "approval",
        [
            Finding(
                "approval.damaged",
                f"The stored decision {name} is not what a person or rule of this silo signed.",
                expected,
                got,
                "find out who changed it and restore it; if it is lost, submit the job under another name",
            )
        ],
    )


def _read(path: Path, name: str) -> bytes:
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise damaged(name, f"at most {_MAX_BYTES} bytes", "more")
    return raw


@lru_cache(maxsize=_REMEMBERED)
def _opened(raw: bytes, name: str) -> Decision:
    """Remembered by every byte of it, so that a round costs no signature; what does not open never is."""
    try:
        signed = SignedApproval.model_validate(parse_canonical(raw, _MAX_BYTES))
        digest = sha256_hex(signed.body.encode())
        return Decision(name, open_approval(signed), signed.verify_key, digest)
    except SignatureRejected as error:
        raise damaged(name, "the signature of the key it names", "another text or signature") from error
    except (MalformedMessage, ValidationError) as error:
        raise damaged(name, "a signed decision", "something else") from error
