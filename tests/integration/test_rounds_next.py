"""A silo's calls of a short round: one to each server, and one that says how it ended and what comes next."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privacy.canonical import canonical_bytes
from privacy.plan import RoundPlan
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import RoundOffer, RoundResult
from privacy.wire.next_round import NextRound, parse_next_round
from tests.aggregator_world import (
    Silo,
    World,
    client_of,
    content_digest,
    on_loop,
    send_share,
    submission,
    submit,
)
from tests.federation import SharedUpdate

NOTHING = np.zeros(3, dtype=np.float32)


class Brisk(Silo):
    """A silo that asks for offers once, and from then on only what follows a round."""

    calls: int = 0

    async def run(self) -> None:
        self.following: list[NextRound] = []
        der = self.world.federation.certificate_der(self.name)
        async with client_of(self.aggregator.app, der) as client:
            answer = await client.get("/v1/offers", params={"wait_s": 30})
            offer = RoundOffer.model_validate_json(parse_envelope(answer.content).body)
            while True:
                await self._answer(client, offer.plan)
                path = f"/v1/rounds/{offer.plan.context}/next"
                coming = parse_next_round((await client.get(path, params={"wait_s": 30})).content)
                self.following.append(coming)
                if coming.offer is None:
                    return
                offer = RoundOffer.model_validate_json(coming.offer.body)


def _along(update: SharedUpdate, server: str) -> bytes:
    """A submission with all its parts, for the first server."""
    said = json.loads(submission(update, server))
    said["parts"] = [base64.b64encode(part).decode() for part in update.parts]
    return canonical_bytes(said)


@on_loop
async def test_a_rounds_result_comes_with_the_next_offer_and_the_model_it_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the next round may take longer to open than a result is held back for it.
    monkeypatch.setattr("aggregator.next_round.OFFER_WAIT_S", 30.0)
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=3)
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Brisk(world, aggregator, f"silo-{n}", NOTHING) for n in range(1, 5)]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
    for silo in silos:
        results = [RoundResult.model_validate_json(coming.result.body) for coming in silo.following]
        assert [result.outcome for result in results] == ["opened"] * 3
        offers = [coming.offer for coming in silo.following if coming.offer is not None]
        plans = [RoundOffer.model_validate_json(offer.body).plan for offer in offers]
        assert [plan.round for plan in plans] == [2, 3]
        for plan, result, coming in zip(plans, results, silo.following, strict=False):
            assert coming.model is not None
            assert coming.model.digest == plan.model == result.model_out
            assert len(coming.model.raw) == 4 * spec.model.parameters
        assert silo.following[-1].offer is None, "the job is over"


@on_loop
async def test_a_result_is_not_held_back_for_a_round_that_waits_for_silos(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator(presence_s=0.05)) as aggregator:
        silos = [Silo(world, aggregator, f"silo-{n}", NOTHING) for n in range(1, 5)]
        working = [asyncio.create_task(silo.run()) for silo in silos]
        await submit(world, aggregator, world.federation.job_spec(rounds=2))
        while not any(silo.results for silo in silos):
            await asyncio.sleep(0.01)
        for task in working:  # nobody is there for the second round but the one that asks
            task.cancel()
        ctx = silos[0].sent[0].envelope.context
        async with client_of(aggregator.app, world.federation.certificate_der("silo-1")) as client:
            answer = await asyncio.wait_for(client.get(f"/v1/rounds/{ctx}/next?wait_s=60"), 20)
        coming = parse_next_round(answer.content)
        assert RoundResult.model_validate_json(coming.result.body).outcome == "opened"


@on_loop
async def test_nothing_follows_a_round_that_is_open_unknown_or_asked_for_by_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        clients = {
            party: client_of(aggregator.app, world.federation.certificate_der(party))
            for party in ("silo-1", "silo-2", "silo-3", "silo-4", "researcher")
        }
        waiting = [asyncio.create_task(clients[f"silo-{n}"].get("/v1/offers?wait_s=30")) for n in range(1, 5)]
        await submit(world, aggregator, world.federation.job_spec())
        ctx = parse_envelope((await asyncio.gather(*waiting))[0].content).context
        assert (await clients["silo-1"].get(f"/v1/rounds/{ctx}/next")).status_code == 204
        assert (await clients["silo-1"].get(f"/v1/rounds/{'0' * 64}/next")).status_code == 404
        assert (await clients["researcher"].get(f"/v1/rounds/{ctx}/next")).status_code == 403
        for client in clients.values():
            await client.aclose()


async def _offered(world: World) -> RoundPlan:
    plan = world.federation.plan(world.federation.job_spec())
    offer = world.federation.offer(plan, world.federation.sign_job(world.federation.job_spec()))
    for server in world.servers:
        async with world.as_party("aggregator", server) as client:
            answer = await client.post("/v1/rounds", content=canonical_bytes(offer))
            assert answer.status_code == 201, answer.text
    return plan


async def _post(world: World, plan: RoundPlan, party: str, server: str, body: bytes) -> httpx.Response:
    async with world.as_party(party, server) as client:
        return await client.post(f"/v1/rounds/{plan.context}/manifests", content=body)


@on_loop
async def test_a_share_that_comes_along_is_the_same_as_one_that_was_put_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    plan = await _offered(world)
    first, second = sorted(world.servers)
    along, before = (world.federation.share(plan, name, NOTHING) for name in ("silo-1", "silo-2"))
    assert (await _post(world, plan, "silo-1", first, _along(along, first))).status_code == 201
    assert (await _post(world, plan, "silo-1", second, submission(along, second))).status_code == 201
    await send_share(world.to_servers("silo-2"), before)
    for silo, update in (("silo-1", along), ("silo-2", before)):
        path = tmp_path / first / "parts" / plan.context / silo / "00000"
        assert path.read_bytes() == update.parts[0]
    async with world.as_party("aggregator", first) as client:
        accepted = parse_envelope((await client.post(f"/v1/rounds/{plan.context}/close")).content)
    assert set(json.loads(accepted.body)["manifests"]) == {"silo-1", "silo-2"}
    # A lost answer is asked for again, also after the set was frozen; another share is not taken.
    assert (await _post(world, plan, "silo-1", first, _along(along, first))).status_code == 200
    other = world.federation.share(plan, "silo-1", NOTHING)
    assert (await _post(world, plan, "silo-1", first, _along(other, first))).status_code == 409


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda parts: [b"\0" + parts[0]], 413),
        (lambda parts: [parts[0][:-1]], 422),
        (lambda parts: [*parts, b""], 422),
        (lambda parts: [bytes(len(parts[0]))], 422),
        (lambda parts: [], 422),
    ],
)
def test_parts_that_come_along_are_counted_digested_and_held_against_the_manifest(
    tmp_path: Path, change: Any, status: int
) -> None:
    @on_loop
    async def refused() -> None:
        world = World(tmp_path)
        plan = await _offered(world)
        first = sorted(world.servers)[0]
        update = world.federation.share(plan, "silo-1", NOTHING)
        said = json.loads(submission(update, first))
        said["parts"] = [base64.b64encode(part).decode() for part in change(update.parts)]
        answer = await _post(world, plan, "silo-1", first, canonical_bytes(said))
        assert answer.status_code == status, answer.text

    refused()


@on_loop
async def test_parts_that_come_along_never_replace_parts_that_came_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    plan = await _offered(world)
    first = sorted(world.servers)[0]
    one, other = (world.federation.share(plan, "silo-1", NOTHING) for _ in range(2))
    async with world.as_party("silo-1", first) as client:
        path, part = f"/v1/rounds/{plan.context}/parts/0", one.parts[0]
        assert (await client.put(path, content=part, headers=content_digest(part))).status_code == 201
    assert (await _post(world, plan, "silo-1", first, _along(other, first))).status_code == 409
    assert (await _post(world, plan, "silo-1", first, _along(one, first))).status_code == 201


@on_loop
async def test_a_seed_server_takes_no_vector_that_comes_along(tmp_path: Path) -> None:
    world = World(tmp_path)
    plan = await _offered(world)
    second = sorted(world.servers)[1]
    update = world.federation.share(plan, "silo-1", NOTHING)
    assert (await _post(world, plan, "silo-1", second, _along(update, second))).status_code == 422
