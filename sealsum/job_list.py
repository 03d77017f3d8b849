"""``sealsum job list``: the jobs that the aggregator knows, asked for page by page."""

from __future__ import annotations

from pydantic import ValidationError

from privacy.errors import MalformedMessage
from privacy.wire.job_list import LISTED_JOBS_MAX, JobList, ListedJob
from silo_agent.transport import FederationClient

_PAGE_BYTES_MAX = 4 << 20
_PAGES_MAX = 500


def listed_jobs(client: FederationClient) -> tuple[ListedJob, ...]:
    """All of them, oldest first.

    Raises:
        PeerFault: the aggregator's refusal; MalformedMessage if it answers something else.
    """
    found: list[ListedJob] = []
    for _ in range(_PAGES_MAX):
        beyond = found[-1].position if found else 0
        raw = client.get_bytes("/v1/job-list", limit=_PAGE_BYTES_MAX, params={"beyond": str(beyond)})
        try:
            page = JobList.model_validate_json(raw).jobs
        except ValidationError as error:
            raise MalformedMessage("job list: expected a list of jobs, got something else") from error
        positions = [beyond, *(one.position for one in page)]
        if positions != sorted(set(positions)):
            raise MalformedMessage("job list: expected jobs in order, each once, got others")
        found += page
        if len(page) < LISTED_JOBS_MAX:
            break
    return tuple(found)
