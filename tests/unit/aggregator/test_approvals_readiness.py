"""The aggregator asks silos before it begins a job: invites who approves, waits, and gives up aloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from aggregator.assembly import Aggregator
from privacy.canonical import canonical_bytes
from privacy.plan import JobSpec
from privacy.wire.readiness import JobReadiness, parse_queue
from tests.aggregator_world import Silo, World, approve, client_of, on_loop, submit

SILOS = ("silo-1", "silo-2", "silo-3", "silo-4")


async def ask(world: World, aggregator: Aggregator, spec: JobSpec) -> None:
    """Submit, and have nobody answer yet."""
    await submit(world, aggregator, spec, approved=False)


async def view_of(world: World, aggregator: Aggregator, job: str = "heart") -> dict[str, Any]:
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        view: dict[str, Any] = (await client.get(f"/v1/jobs/{job}")).json()
        return view


async def until(world: World, aggregator: Aggregator, state: str, job: str = "heart") -> dict[str, Any]:
    """Wait for a state, by versions, as a researcher does."""
    after = 0
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        while True:
            answer = await client.get(f"/v1/jobs/{job}", params={"after": after, "wait_s": 30})
            view: dict[str, Any] = answer.json()
            if view["state"] == state:
                return view
            after = view["version"]


@asynccontextmanager
async def present(world: World, aggregator: Aggregator, *names: str) -> AsyncIterator[list[Silo]]:
    """Silos that poll, and take part in whatever they are offered."""
    silos = [Silo(world, aggregator, name) for name in names]
    tasks = [asyncio.create_task(silo.run()) for silo in silos]
    try:
        yield silos
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@on_loop
async def test_a_job_begins_once_enough_silos_approve_and_invites_only_those(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec(rounds=1)
    async with world.running(aggregator), present(world, aggregator, *SILOS) as silos:
        await ask(world, aggregator, spec)
        await approve(world, aggregator, spec, silos=SILOS[:2])
        await asyncio.sleep(4 * world.grace_s)
        waiting = await view_of(world, aggregator)
        assert (waiting["state"], waiting["round"]) == ("waiting", 0)
        said = {silo: answer["decision"] for silo, answer in waiting["readiness"]["silos"].items()}
        assert said == {
            "silo-1": "approved",
            "silo-2": "approved",
            "silo-3": "unanswered",
            "silo-4": "unanswered",
        }
        await approve(world, aggregator, spec, "rejected", SILOS[3:])
        await approve(world, aggregator, spec, silos=SILOS[2:3])
        view = await until(world, aggregator, "finished")
    assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]
    assert not silos[3].sent, "a silo that rejected is not invited"
    assert view["readiness"] is None


@on_loop
async def test_too_many_rejections_end_a_job_with_its_reason_and_no_round(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec()
    async with world.running(aggregator):
        await ask(world, aggregator, spec)
        await approve(world, aggregator, spec, "rejected", SILOS[:2])
        view = await until(world, aggregator, "failed")
    assert view["reason"].startswith("too few silos: 3 needed; rejected by silo-1")
    assert view["history"] == []


@on_loop
async def test_a_job_that_nobody_decides_in_time_ends_with_its_reason(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator(approval_wait_s=0.2)
    async with world.running(aggregator):
        await ask(world, aggregator, world.federation.job_spec())
        view = await until(world, aggregator, "failed")
    assert view["reason"] == "not approved in time: 3 silos needed, 0 of 4 have approved"


@on_loop
async def test_a_job_that_waits_for_people_holds_up_no_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    undecided = world.federation.job_spec()
    urgent = world.federation.job_spec(job="urgent", rounds=1)
    async with world.running(aggregator), present(world, aggregator, *SILOS):
        await ask(world, aggregator, undecided)
        await approve(world, aggregator, undecided, "waiting")
        await submit(world, aggregator, urgent)
        await until(world, aggregator, "finished", "urgent")
        assert (await view_of(world, aggregator))["state"] == "waiting"


@on_loop
async def test_a_rejection_in_the_middle_of_a_job_leaves_the_silo_out_of_the_next_round(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec(rounds=2)
    async with world.running(aggregator), present(world, aggregator, *SILOS):
        await ask(world, aggregator, spec)
        publish = aggregator.loop._flow.open_and_publish
        rejected = asyncio.Event()

        async def reject_first(*given: Any) -> None:
            if not rejected.is_set():
                rejected.set()
                await approve(world, aggregator, spec, "rejected", SILOS[:1])
            await publish(*given)

        aggregator.loop._flow.open_and_publish = reject_first  # type: ignore[method-assign]  # when is the point
        await approve(world, aggregator, spec)
        view = await until(world, aggregator, "finished")
    survivors = [ended["survivors"] for ended in view["history"]]
    assert survivors == [list(SILOS), list(SILOS[1:])]


@on_loop
async def test_answers_outlive_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    first = world.build_aggregator()
    async with world.running(first):
        await ask(world, first, spec)
        await approve(world, first, spec)
    second = world.build_aggregator()
    async with world.running(second), present(world, second, *SILOS):
        await until(world, second, "finished")


async def answer(
    world: World,
    client: httpx.AsyncClient,
    spec: JobSpec,
    sender: str,
    context: str | None = None,
    **said: Any,
) -> int:
    fields = {"silo": sender, "job_digest": spec.digest, "decision": "approved", **said}
    message = JobReadiness(**fields)
    envelope = world.federation.sign(message, "readiness", context or spec.digest, sender)  # type: ignore[arg-type]  # a digest
    posted = await client.post(f"/v1/jobs/{spec.job}/readiness", content=canonical_bytes(envelope))
    return posted.status_code


@on_loop
async def test_nobody_answers_in_anothers_name_or_for_another_job(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec()
    other = world.federation.job_spec(rounds=1)
    async with world.running(aggregator):
        await ask(world, aggregator, spec)
        async with client_of(aggregator.app, world.federation.certificate_der("silo-1")) as client:
            assert await answer(world, client, spec, "silo-2") == 403, "another's message, replayed"
            assert await answer(world, client, spec, "silo-1", silo="silo-2") == 422
            assert await answer(world, client, spec, "silo-1", job_digest=other.digest) == 422
            assert await answer(world, client, spec, "silo-1", context=other.digest) == 401
            assert (await view_of(world, aggregator))["readiness"]["silos"]["silo-1"][
                "decision"
            ] == "unanswered"
            assert await answer(world, client, spec, "silo-1") == 202
            version = (await view_of(world, aggregator))["version"]
            assert await answer(world, client, spec, "silo-1") == 202
            assert (await view_of(world, aggregator))["version"] == version, "the same again changes nothing"
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            assert await answer(world, client, spec, "researcher") == 403


@on_loop
async def test_silos_are_shown_open_jobs_a_few_at_a_time_and_told_of_new_ones_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    specs = [world.federation.job_spec(job=f"job-{number}") for number in range(6)]
    async with world.running(aggregator):
        for spec in specs[:5]:
            await ask(world, aggregator, spec)
        async with client_of(aggregator.app, world.federation.certificate_der("silo-1")) as client:
            first = parse_queue((await client.get("/v1/jobs", params={"after": 0})).content)
            assert (len(first.jobs), first.newest > first.last) == (4, True)
            rest = parse_queue((await client.get("/v1/jobs", params={"after": first.last})).content)
            assert (len(rest.jobs), rest.newest) == (1, rest.last)
            assert set(rest.open) == {spec.digest for spec in specs[:5]}
            seen = {"jobs": rest.last, "wait_s": 60}
            waiting = asyncio.create_task(client.get("/v1/offers", params=seen))
            await asyncio.sleep(0)
            await ask(world, aggregator, specs[5])
            told = await asyncio.wait_for(waiting, 20)
            assert told.status_code == 204, "no offer, but news: not after sixty seconds"
            lost = parse_queue((await client.get("/v1/jobs", params={"after": 10**6})).content)
            assert len(lost.jobs) == 4, "whoever has seen another database is shown all"
