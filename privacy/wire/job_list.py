"""The list of a federation's jobs, as the aggregator tells members and people; nothing in it is believed."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from privacy.canonical import Frozen
from privacy.ids import JobName, Name

LISTED_JOBS_MAX: Final = 200
"""In one answer; whoever is told so many asks on from the last."""


class ListedJob(Frozen):
    """One job, in a line."""

    position: Annotated[int, Field(ge=1)]
    """In the order in which jobs came."""
    job: JobName
    researcher: Name
    state: Annotated[str, Field(max_length=20)]
    round: Annotated[int, Field(ge=0)]
    rounds: Annotated[int, Field(ge=1)]
    dataset: Name
    purpose: Annotated[str, Field(max_length=1000)]
    reason: Annotated[str, Field(max_length=10_000)]
    """Why it failed or waits; empty if it does neither."""


class JobList(Frozen):
    """What ``GET /v1/job-list`` answers."""

    jobs: Annotated[tuple[ListedJob, ...], Field(max_length=LISTED_JOBS_MAX)]
