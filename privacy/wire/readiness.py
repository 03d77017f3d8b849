"""What a silo says of a job before its first round, so that only silos that will take part are invited.

Public words only: no person's name and no reason of hers leaves the silo.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, ValidationError, model_validator

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage
from privacy.ids import HexDigest, SiloName
from privacy.wire.envelope import Envelope

QUEUE_BYTES_MAX: Final = 24 << 20
QUEUE_JOBS_MAX: Final = 4
"""Jobs in one answer; whoever asks again from the last one gets the next."""


class JobReadiness(Frozen):
    """Silo → aggregator, under the job's digest: where the job stands here. A later one replaces it."""

    silo: SiloName
    job_digest: HexDigest
    decision: Literal["approved", "rejected", "waiting"]
    rule: Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_.]{0,63})?$")] = ""
    """Which rule rejects it; empty otherwise."""
    reason: Annotated[str, Field(max_length=500)] = ""


class JobQueue(Frozen):
    """Aggregator → silo: which jobs are open, and those beyond a position. Nothing in it is believed."""

    last: Annotated[int, Field(ge=0)]
    """Position of the last job in ``jobs``; what to ask from next."""
    newest: Annotated[int, Field(ge=0)]
    """Position of the newest open job; there is more to ask for where it exceeds ``last``."""
    open: tuple[HexDigest, ...]
    """Digests of all jobs that have not ended."""
    jobs: Annotated[tuple[Envelope, ...], Field(max_length=QUEUE_JOBS_MAX)]

    @model_validator(mode="after")
    def _newest_is_last_or_later(self) -> JobQueue:
        if self.newest < self.last:
            raise ValueError("newest: expected last or a later position")
        return self


def queue_bytes(queue: JobQueue) -> bytes:
    """As it travels."""
    return canonical_bytes(queue)


def parse_queue(raw: bytes) -> JobQueue:
    """Decode a queue; the jobs in it are not verified yet.

    Raises:
        MalformedMessage: too large, not canonical, or not a queue.
    """
    try:
        return JobQueue.model_validate(parse_canonical(raw, QUEUE_BYTES_MAX))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"queue: {where}: {fault['msg']}") from error
