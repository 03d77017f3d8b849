"""One silo against servers' logs: it cannot have them grow without end, nor forget what it showed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator import submissions
from aggregator.refusal_quota import MOST
from privacy.canonical import canonical_bytes
from privacy.ids import Digest
from privacy.transparency.checkpoint import LogHead
from tests.aggregator_world import World, approve, client_of, on_loop, submit
from tests.integration.test_logs_https import SERVER, Log

LONG, SHORT = LogHead(size=9, root=Digest("a" * 64)), LogHead(size=4, root=Digest("b" * 64))


@on_loop
async def test_a_silo_whose_log_went_back_is_told_also_after_the_server_began_anew(tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert (await log.cosign("silo-1", await log.checkpoint(), LONG)).status_code == 202
    log.world.start_server(SERVER)
    answer = await log.cosign("silo-1", await log.checkpoint(), SHORT)
    assert answer.status_code == 409
    assert "expected it to extend its 9 entries" in answer.json()["detail"]


@on_loop
async def test_cosigning_what_cosigning_wrote_ends(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(MOST):
        assert (await log.cosign("silo-1", await log.checkpoint())).status_code == 202
    full = (await log.checkpoint()).head
    for _ in range(3):
        assert (await log.cosign("silo-1", await log.checkpoint())).status_code == 202
    assert (await log.checkpoint()).head == full


@on_loop
async def test_a_silo_that_cannot_make_up_its_mind_does_not_fill_the_log(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec()
    await submit(world, aggregator, spec, approved=False)
    before = aggregator.state.store.log.head.size
    for number in range(MOST + 20):
        await approve(world, aggregator, spec, ("approved", "waiting")[number % 2], ["silo-1"])
    assert aggregator.state.store.log.head.size == before + MOST


@on_loop
async def test_one_researcher_does_not_fill_the_queue_that_all_silos_judge(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submissions, "OPEN_JOBS_MAX", 2)
        first = world.federation.job_spec(job="one")
        for spec in (first, world.federation.job_spec(job="two")):
            await submit(world, aggregator, spec, approved=False)
        third = canonical_bytes(world.federation.sign_job(world.federation.job_spec(job="three")))
        again = canonical_bytes(world.federation.sign_job(first))
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            answer = await client.post("/v1/jobs", content=third)
            assert answer.status_code == 409
            assert "at most 2 open jobs of researcher" in answer.json()["detail"]
            assert (await client.post("/v1/jobs", content=again)).status_code == 200
            assert (await client.get("/v1/jobs/three")).status_code == 404


@on_loop
async def test_a_size_that_no_database_holds_is_refused_as_a_number(tmp_path: Path) -> None:
    answer = await Log(tmp_path).get("/v1/log", size=1 << 70)
    assert answer.status_code == 400
    assert "size" in answer.json()["detail"]
