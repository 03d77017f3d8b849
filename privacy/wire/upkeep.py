"""What an aggregator's operators ask and are told about its upkeep: drains, legal holds, expiry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from privacy.canonical import Frozen
from privacy.ids import JobName

MAX_REQUEST_BYTES = 4096
What = Literal["jobs", "rounds"]
"""``jobs``: no job begins that has not begun. ``rounds``: nor does another round of one that has."""


def _one_line(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected one line of printable characters, without spaces at its ends")
    return text


Reason = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_one_line)]
"""Why, such as a file number; it goes into the log."""
Unix = Annotated[int, Field(ge=0)]
"""Seconds."""


class DrainRequest(Frozen):
    """Begin nothing new, until told otherwise."""

    what: What
    reason: Reason


class Drain(DrainRequest):
    """One that stands; ``by`` is the operator's pseudonym."""

    by: str
    at: Unix


class HoldRequest(Frozen):
    """Keep all that there is of a job, whatever its age."""

    job: JobName
    reason: Reason


class Hold(HoldRequest):
    """One that stands; ``by`` is the operator's pseudonym."""

    by: str
    at: Unix


class ExpiryRequest(Frozen):
    """Delete what there is of jobs that ended longer ago than so many days, as far as nothing keeps it."""

    older_than_days: Annotated[int, Field(ge=0, le=36525)]
    dry_run: bool = False
    """Only say what would go."""


class KeptJob(Frozen):
    """A job that is old enough for whoever asks, and must stay."""

    job: JobName
    rule: str
    why: str


class Expiry(Frozen):
    """What became of a request."""

    dry_run: bool
    expired: tuple[JobName, ...]
    kept: tuple[KeptJob, ...]


class CollectionRequest(Frozen):
    """Delete stored bytes that no row of the database knows, and that are old enough."""

    dry_run: bool = False
    """Only say what would go."""


class Collection(Frozen):
    """What became of it."""

    dry_run: bool
    blobs: int
    bytes: int
    names: tuple[str, ...]
    """What they lay under, as ``kind/name``."""
    missing: tuple[str, ...]
    """What the database knows and the store does not have."""


class Upkeep(Frozen):
    """What stands."""

    drain: Drain | None
    holds: tuple[Hold, ...]
