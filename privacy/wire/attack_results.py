"""What attacks on one job came to, as a member of the federation signed it: before its model is released.

It is bound to the job by its digest, and to the model that the job ended with: it speaks for no other.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints

from privacy.canonical import Frozen
from privacy.ids import HexDigest, JobName
from privacy.wire.envelope import Envelope

SuiteName = Literal["quick", "full"]
Verdict = Literal["consistent", "VIOLATED", "succeeds", "NO POWER"]
"""With the protection on: the attack failed, as is claimed; or it did not. With it off: the attack succeeded,
so that its failure elsewhere means something; or it did not, and shows nothing anywhere."""
AS_EXPECTED: Final[frozenset[Verdict]] = frozenset({"consistent", "succeeds"})
Words = Annotated[str, Field(min_length=1, max_length=500)]
_INSTANT: Final = "%Y-%m-%dT%H:%M:%SZ"


def _there_is(at: str) -> str:
    # What has the form and is no instant, such as month 13, would fail whoever asks for the model later on.
    datetime.strptime(at, _INSTANT)  # noqa: DTZ007 (its zone is the Z; only whether it is one is asked)
    return at


Instant = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z$"),
    AfterValidator(_there_is),
]


class AttackOutcome(Frozen):
    """One attack under one protection."""

    attack: Words
    protection: Words
    verdict: Verdict


class AttackResult(Frozen):
    """Member → aggregator, under the job's digest. A later one of the same member replaces it."""

    job: JobName
    job_digest: HexDigest
    model: HexDigest
    """The model that the job ended with."""
    suite: SuiteName
    version: Annotated[str, Field(min_length=1, max_length=100)]
    """Of the Sealsum that was attacked."""
    results: HexDigest
    """SHA-256 of the whole results, ``attack.json``, which the signer keeps."""
    outcomes: Annotated[tuple[AttackOutcome, ...], Field(min_length=1, max_length=1000)]
    at: Instant

    @property
    def passed(self) -> bool:
        """Every attack succeeded with its protection off and failed with it on."""
        return all(one.verdict in AS_EXPECTED for one in self.outcomes)

    @property
    def when(self) -> datetime:
        """``at``, aware."""
        return datetime.strptime(self.at, _INSTANT).replace(tzinfo=UTC)


class AttackSubject(Frozen):
    """Aggregator → member: what is to be attacked, and what others have said. Nothing in it is believed."""

    job: Envelope
    model: HexDigest
    results: tuple[Envelope, ...]
