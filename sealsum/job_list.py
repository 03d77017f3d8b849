"""``sealsum job list`` and ``read jobs``: the jobs that the aggregator knows, asked for page by page."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from pydantic import ValidationError

from privacy.errors import MalformedMessage
from privacy.wire.job_list import LISTED_JOBS_MAX, JobList, ListedJob
from sealsum.served_log import ServerClient

_PAGE_BYTES_MAX = 4 << 20
_PAGES_MAX = 500


def listed_jobs(client: ServerClient) -> tuple[ListedJob, ...]:
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


def print_jobs(found: Sequence[ListedJob], only_open: bool, as_json: bool) -> None:
    """A line a job, or one JSON document."""
    shown = [one for one in found if not only_open or one.state in ("waiting", "running")]
    if as_json:
        click.echo(json.dumps({"jobs": [one.model_dump(mode="json") for one in shown]}))
        return
    for one in shown:
        because = f" ({one.reason})" if one.reason else ""
        said = f"{one.job}: {one.state}, round {one.round} of {one.rounds}{because}"
        click.echo(f"{said}; {one.researcher} on {one.dataset}: {one.purpose}")
    if not shown:
        click.echo("no open job" if found else "no job")
