"""The list of jobs: whoever may look at one job sees them all, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from privacy.canonical import canonical_bytes
from privacy.errors import MalformedMessage
from privacy.wire.job_list import LISTED_JOBS_MAX, JobList, ListedJob
from sealsum.cli import cli
from sealsum.job_list import listed_jobs
from tests.aggregator_world import World, client_of, on_loop, submit


@on_loop
async def test_jobs_are_listed_in_order_with_who_asked_and_where_they_stand(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    async with world.running(aggregator):
        for name in ("heart", "lung"):
            await submit(world, aggregator, world.federation.job_spec(job=name, rounds=2), approved=False)
        async with client_of(aggregator.app, world.federation.certificate_der("server-0")) as client:
            told = JobList.model_validate_json((await client.get("/v1/job-list")).content).jobs
            rest = await client.get("/v1/job-list", params={"beyond": told[0].position})
    assert [(one.job, one.researcher, one.state, one.round, one.rounds) for one in told] == [
        ("heart", "researcher", "waiting", 0, 2),
        ("lung", "researcher", "waiting", 0, 2),
    ]
    assert JobList.model_validate_json(rest.content).jobs == told[1:]


def line(position: int) -> ListedJob:
    return ListedJob(
        position=position,
        job=f"job-{position}",
        researcher="ada",
        state="running",
        round=1,
        rounds=2,
        dataset="cardio",
        purpose="test",
        reason="",
    )


class Told:
    """An aggregator that has these jobs; or, if it lies, answers each question with all of them."""

    def __init__(self, jobs: Sequence[ListedJob], lies: bool = False) -> None:
        self.jobs, self.lies = jobs, lies

    def get_bytes(self, path: str, *, limit: int, params: Mapping[str, str] | None = None) -> bytes:
        assert params is not None
        beyond = 0 if self.lies else int(params["beyond"])
        page = [one for one in self.jobs if one.position > beyond][:LISTED_JOBS_MAX]
        return canonical_bytes(JobList(jobs=tuple(page)))


def test_more_jobs_than_one_answer_holds_are_asked_for_page_by_page() -> None:
    jobs = [line(at) for at in range(1, 2 * LISTED_JOBS_MAX + 2)]
    assert list(listed_jobs(Told(jobs))) == jobs


def test_an_aggregator_that_repeats_itself_is_not_asked_forever() -> None:
    jobs = [line(at) for at in range(1, LISTED_JOBS_MAX + 1)]
    with pytest.raises(MalformedMessage, match="in order"):
        listed_jobs(Told(jobs, lies=True))


def test_the_command_says_what_it_lists() -> None:
    told = CliRunner().invoke(cli, ["job", "list", "--help"])
    assert told.exit_code == 0
    assert "--open" in told.output
