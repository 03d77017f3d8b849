"""A later charter while servers run: in force from the next round, but for whom it revokes: at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregator.assembly import Aggregator
from privacy.canonical import canonical_bytes
from privacy.ids import PartyId
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter
from privacy.wire.charter import EndorsedCharter, parse_charter
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import RoundOffer
from tests.aggregator_world import Silo, World, client_of, on_loop, send_share, submit


def without(world: World, *parties: str) -> EndorsedCharter:
    """The next charter, in which these parties have left."""
    held = world.federation.charter
    members = tuple(member for member in held.members if member.id not in parties)
    revoked = tuple(sorted(held.member(PartyId(party)).verify_key for party in parties))
    return world.federation.endorse(world.federation.next_charter(members=members, revoked=revoked))


def same_again(world: World) -> EndorsedCharter:
    """The next charter, in which nothing changes but its place."""
    return world.federation.endorse(world.federation.next_charter())


async def bring(app: Any, world: World, charter: EndorsedCharter, bearer: str = "silo-1") -> httpx.Response:
    async with client_of(app, world.federation.certificate_der(bearer)) as client:
        return await client.put("/v1/charter", content=canonical_bytes(charter))


async def charter_shown(aggregator: Aggregator, world: World, party: str = "silo-1") -> EndorsedCharter:
    async with client_of(aggregator.app, world.federation.certificate_der(party)) as client:
        return parse_charter((await client.get("/v1/charter")).content)


async def next_plan(aggregator: Aggregator, world: World, silo: str, after: str = "") -> RoundPlan:
    async with client_of(aggregator.app, world.federation.certificate_der(silo)) as client:
        answer = await client.get("/v1/offers", params={"after": after, "wait_s": 10})
        assert answer.status_code == 200, answer.text
        return RoundOffer.model_validate_json(parse_envelope(answer.content).body).plan


async def view_of(aggregator: Aggregator, world: World, spec: JobSpec) -> dict[str, Any]:
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        view: dict[str, Any] = {"version": 0, "state": "waiting"}
        while view["state"] in ("waiting", "running"):
            answer = await client.get(f"/v1/jobs/{spec.job}", params={"after": view["version"], "wait_s": 20})
            if answer.status_code == 200:
                view = answer.json()
        return view


def kinds(aggregator: Aggregator) -> list[str]:
    store = aggregator.state.store
    with store.read() as view:
        return [json.loads(line)["kind"] for line in store.log.lines(view.connection)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


# --- who may change it ---


@on_loop
async def test_any_member_may_carry_a_charter_and_the_share_servers_get_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    later = same_again(world)
    async with world.running(world.build_aggregator()) as aggregator:
        assert (await bring(aggregator.app, world, later, "silo-3")).status_code == 201
        assert (await bring(aggregator.app, world, later, "researcher")).status_code == 200
        await until(lambda: aggregator.state.held.charter.epoch == 2)
        assert await charter_shown(aggregator, world) == later
        for server in world.servers.values():
            assert (await bring(server.app, world, later)).status_code == 200, "the aggregator brought it"
        assert {"charter_taken", "charter_in_force"} <= set(kinds(aggregator))


@on_loop
async def test_strangers_cannot_make_a_server_look_at_a_charter(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    for app in (aggregator.app, world.servers["server-0"].app):
        async with client_of(app, None) as client:
            answer = await client.put("/v1/charter", content=canonical_bytes(same_again(world)))
            assert answer.status_code == 401
    aggregator.state.store.close()


@on_loop
async def test_a_charter_that_too_few_officers_signed_changes_nothing_anywhere(tmp_path: Path) -> None:
    world = World(tmp_path)
    loose = world.federation.endorse(world.federation.next_charter(), by=["officer-3"])
    aggregator = world.build_aggregator()
    for app in (aggregator.app, *(server.app for server in world.servers.values())):
        answer = await bring(app, world, loose)
        assert answer.status_code == 401
        assert "ask one of officer-1, officer-2" in answer.json()["detail"]
    assert aggregator.state.charters.newest.charter == world.federation.charter
    aggregator.state.store.close()


@on_loop
async def test_an_old_charter_and_a_second_one_of_the_epoch_are_refused_while_running(tmp_path: Path) -> None:
    world = World(tmp_path)
    first, later = world.federation.endorsed_charter, same_again(world)
    async with world.running(world.build_aggregator()) as aggregator:
        assert (await bring(aggregator.app, world, later)).status_code == 201
        for other, reason in ((first, "never taken back"), (without(world, "silo-4"), "two different ones")):
            answer = await bring(aggregator.app, world, other)
            assert answer.status_code == 409
            assert reason in answer.json()["detail"]


@on_loop
async def test_a_server_that_restarts_lives_by_the_charter_that_was_brought(tmp_path: Path) -> None:
    world = World(tmp_path)
    later = same_again(world)
    assert (await bring(world.servers["server-0"].app, world, later)).status_code == 201
    world.start_server("server-0")
    assert (await bring(world.servers["server-0"].app, world, later)).status_code == 200
    old = await bring(world.servers["server-0"].app, world, world.federation.endorsed_charter)
    assert old.status_code == 409


# --- the open round, and the job ---


@on_loop
async def test_the_open_round_ends_under_its_own_charter_and_the_job_ends_with_its_reason(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=4)
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Silo(world, aggregator, name) for name in world.federation.charter.silos]
        silos[3].silent = True  # the round stays open until she speaks
        runs = [asyncio.create_task(silo.run()) for silo in silos]
        await submit(world, aggregator, spec)
        await until(
            lambda: aggregator.state.current is not None and len(aggregator.state.current.round.answers) == 3
        )
        assert (await bring(aggregator.app, world, same_again(world))).status_code == 201
        assert aggregator.state.held.charter.epoch == 1
        plan = aggregator.state.current.round.plan  # type: ignore[union-attr] # seen just now
        update = world.federation.share(plan, "silo-4")
        await send_share(world.to_servers("silo-4"), update)
        async with client_of(aggregator.app, world.federation.certificate_der("silo-4")) as client:
            path = f"/v1/rounds/{plan.context}/manifests"
            assert (await client.post(path, content=canonical_bytes(update.envelope))).status_code == 202
        view = await view_of(aggregator, world, spec)
        for run in runs:
            run.cancel()
        assert view["history"][0]["outcome"] == "opened"
        assert view["history"][0]["survivors"] == list(world.federation.charter.silos)
        assert (view["state"], len(view["history"])) == ("failed", 1)
        assert "signed under an earlier one; sign it again under the new charter" in view["reason"]
        assert aggregator.state.held.charter.epoch == 2


# --- revocation does not wait ---


@on_loop
async def test_a_silo_revoked_in_an_open_round_is_let_in_nowhere_and_the_round_goes_on_without_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    async with world.running(world.build_aggregator()) as aggregator:
        runs = [
            asyncio.create_task(Silo(world, aggregator, name).run())
            for name in world.federation.charter.silos[:3]
        ]
        await submit(world, aggregator, spec)
        plan = await next_plan(aggregator, world, "silo-4")
        await until(
            lambda: aggregator.state.current is not None and len(aggregator.state.current.round.answers) == 3
        )
        assert (await bring(aggregator.app, world, without(world, "silo-4"))).status_code == 201
        update = world.federation.share(plan, "silo-4")
        for client in (
            client_of(aggregator.app, world.federation.certificate_der("silo-4")),
            *world.to_servers("silo-4").values(),
        ):
            path = f"/v1/rounds/{plan.context}/manifests"
            answer = await client.post(path, content=canonical_bytes(update.envelope))
            assert answer.status_code == 403, answer.text
            assert "not in the roster" in answer.json()["detail"]
        view = await view_of(aggregator, world, spec)
        await asyncio.gather(*runs)
        assert view["history"][0]["outcome"] == "opened", "nobody waits for who was revoked"
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]
        assert "silo_revoked" in kinds(aggregator)


@on_loop
async def test_an_update_that_was_sent_before_its_silo_was_revoked_is_not_summed(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1, round_deadline_s=2)
    async with world.running(world.build_aggregator()) as aggregator:
        runs = [
            asyncio.create_task(Silo(world, aggregator, name).run())
            for name in ("silo-1", "silo-2", "silo-4")
        ]
        await submit(world, aggregator, spec)
        plan = await next_plan(aggregator, world, "silo-3")
        await until(
            lambda: aggregator.state.current is not None and len(aggregator.state.current.round.answers) == 3
        )
        assert (await bring(aggregator.app, world, without(world, "silo-4"))).status_code == 201
        update = world.federation.share(plan, "silo-3")
        await send_share(world.to_servers("silo-3"), update)
        async with client_of(aggregator.app, world.federation.certificate_der("silo-3")) as client:
            path = f"/v1/rounds/{plan.context}/manifests"
            assert (await client.post(path, content=canonical_bytes(update.envelope))).status_code == 202
        view = await view_of(aggregator, world, spec)
        for run in runs:
            run.cancel()
        assert view["history"][0]["outcome"] == "opened"
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]


@on_loop
async def test_a_share_server_that_froze_a_silo_signs_and_releases_nothing_once_it_is_revoked(
    tmp_path: Path,
) -> None:
    """The aggregator here is an adversary who goes on as if nothing had been revoked."""
    world = World(tmp_path)
    federation = world.federation
    spec = federation.job_spec()
    plan = federation.plan(spec)
    offer = federation.offer(plan, federation.sign_job(spec))
    frozen = {}
    for server in world.servers:
        async with world.as_party("aggregator", server) as client:
            assert (await client.post("/v1/rounds", content=canonical_bytes(offer))).status_code == 201
    for silo in federation.charter.silos:
        await send_share(world.to_servers(silo), federation.share(plan, silo))
    for server in world.servers:
        async with world.as_party("aggregator", server) as client:
            frozen[server] = parse_envelope((await client.post(f"/v1/rounds/{plan.context}/close")).content)
    later = without(world, "silo-4")
    for server in world.servers:
        assert (await bring(world.servers[server].app, world, later)).status_code == 201
        said = [one.model_dump(mode="json") for one in frozen.values()]
        async with world.as_party("aggregator", server) as client:
            answer = await client.post(f"/v1/rounds/{plan.context}/agree", content=canonical_bytes(said))
            assert answer.status_code == 422
            assert "silo-4 was revoked while it was open; its sum stays closed" in answer.json()["detail"]


@on_loop
async def test_a_round_left_open_under_the_earlier_charter_passes_no_gate_under_the_later(
    tmp_path: Path,
) -> None:
    """A share server goes over with the first offer under the later charter; what is behind it is closed."""
    world = World(tmp_path)
    federation = world.federation
    old_spec = federation.job_spec()
    old_plan = federation.plan(old_spec)
    server = "server-0"
    async with world.as_party("aggregator", server) as client:
        offered = await client.post(
            "/v1/rounds", content=canonical_bytes(federation.offer(old_plan, federation.sign_job(old_spec)))
        )
        assert offered.status_code == 201
        assert (await bring(world.servers[server].app, world, same_again(world))).status_code == 201
        federation.charter, federation.epoch = federation.next_charter(), 2
        new_spec = federation.job_spec(job="second")
        offer = federation.offer(federation.plan(new_spec), federation.sign_job(new_spec))
        offered = await client.post("/v1/rounds", content=canonical_bytes(offer))
        assert offered.status_code == 201, offered.text
        closed = await client.post(f"/v1/rounds/{old_plan.context}/close")
        assert closed.status_code in (401, 422), closed.text


@on_loop
async def test_a_share_server_swapped_by_the_officers_is_the_only_one_that_is_swapped(tmp_path: Path) -> None:
    """A plan with another server than the charter's is refused by servers and silos alike; here the one that
    was removed, offered by an aggregator that would rather keep it."""
    world = World(tmp_path)
    federation = world.federation
    newcomer = federation.parties["server-1"].member.model_copy(
        update={"id": PartyId("server-2"), "verify_key": "ab" * 32, "operator": "Operator 2"}
    )
    old = federation.charter.member(PartyId("server-1"))
    members = tuple(
        sorted(
            (newcomer if member == old else member for member in federation.charter.members),
            key=lambda member: member.id,
        )
    )
    charter = federation.next_charter(members=members, revoked=(old.verify_key,))
    assert (await bring(world.servers["server-0"].app, world, federation.endorse(charter))).status_code == 201
    spec = federation.job_spec()
    plan = federation.plan(spec)  # of the earlier charter, with server-1 in it
    async with world.as_party("aggregator", "server-0") as client:
        answer = await client.post(
            "/v1/rounds", content=canonical_bytes(federation.offer(plan, federation.sign_job(spec)))
        )
    assert answer.status_code in (401, 422)
    assert (
        await bring(world.servers["server-0"].app, world, federation.endorse(charter), "server-1")
    ).status_code == 403


def test_a_charter_names_its_place_among_charters() -> None:
    world_charter = World.__dataclass_fields__["federation"].default_factory().charter  # type: ignore[misc]
    for changes, message in (
        ({"epoch": 2}, "previous: expected the charter of the epoch before"),
        ({"previous": "0" * 64}, "none for epoch 1"),
        ({"revoked": ("ff" * 32, "00" * 32)}, "revoked: expected distinct keys, sorted"),
    ):
        with pytest.raises(ValueError, match=message):
            Charter.model_validate(world_charter.model_dump() | changes)
