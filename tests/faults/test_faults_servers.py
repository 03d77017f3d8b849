"""Servers in memory: half of a share, a server that is cut off, a clock that is set while a round is open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregator import audit_log, peers, store
from privacy.canonical import canonical_bytes
from privacy.plan import RoundPlan
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import AcceptedSet, SurvivorSet
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

SERVERS = ("server-0", "server-1")


@on_loop
async def test_a_silo_that_died_between_its_two_shares_is_in_no_sum(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec()
    plan = world.federation.plan(spec)
    offer = canonical_bytes(world.federation.offer(plan, world.federation.sign_job(spec)))
    calls = world.to_servers("aggregator")
    for server in SERVERS:
        assert (await calls[server].post("/v1/rounds", content=offer)).status_code == 201
    for silo in ("silo-1", "silo-2", "silo-3"):
        await send_share(world.to_servers(silo), world.federation.share(plan, silo))
    half = world.federation.share(plan, "silo-4")
    first = world.to_servers("silo-4")["server-0"]
    path = f"/v1/rounds/{plan.context}"
    (part,) = half.parts
    await first.put(f"{path}/parts/0", content=part, headers=content_digest(part))
    taken = await first.post(f"{path}/manifests", content=submission(half, "server-0"))
    assert taken.status_code == 201

    closed = [parse_envelope((await calls[server].post(f"{path}/close")).content) for server in SERVERS]
    accepted = [AcceptedSet.model_validate_json(one.body) for one in closed]
    assert [len(one.manifests) for one in accepted] == [4, 3]
    both = canonical_bytes([one.model_dump(mode="json") for one in closed])
    for server in SERVERS:
        agreed = parse_envelope((await calls[server].post(f"{path}/agree", content=both)).content)
        survivors = SurvivorSet.model_validate_json(agreed.body).survivors
        assert survivors == ("silo-1", "silo-2", "silo-3")


class _CutOff(World):
    """The aggregator does not reach the second share server; silos do."""

    def to_server(self, server: str, der: bytes) -> httpx.AsyncBaseTransport:
        def nobody(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("no route", request=request)

        return httpx.MockTransport(nobody) if server == "server-1" else super().to_server(server, der)


@on_loop
async def _without_a_server(root: Path) -> None:
    world = _CutOff(root)
    spec = world.federation.job_spec(rounds=1, round_deadline_s=1)
    view = await _play(world, spec)
    assert (view["state"], view["openings"]) == ("failed", 0)
    assert view["model"] == view["initial_model"]
    assert "server-1" in view["history"][0]["reason"]


def test_without_a_share_server_nothing_is_opened_and_the_job_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PATIENCE_S", 0.2)
    _without_a_server(tmp_path)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_set_in_the_middle_of_a_round_moves_no_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    real = store.unix_ms

    class SetsTheClock(Silo):
        async def _answer(self, client: httpx.AsyncClient, plan: RoundPlan) -> None:
            monkeypatch.setattr(store, "unix_ms", lambda: real() + hours * 3_600_000)
            monkeypatch.setattr(audit_log, "utc_now", lambda: "2031-01-01T00:00:00.000Z")
            await asyncio.sleep(0.1)  # a deadline by that clock would be over, or an hour away
            await super()._answer(client, plan)

    @on_loop
    async def play() -> None:
        world = World(tmp_path)
        spec = world.federation.job_spec(rounds=1, round_deadline_s=2)
        view = await _play(world, spec, SetsTheClock, "silo-4")
        assert (view["state"], view["openings"]) == ("finished", 1)
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]

    play()


async def _play(world: World, spec: Any, kind: type[Silo] = Silo, silent: str = "") -> dict[str, Any]:
    """Run a job to its end, with one silo that says nothing."""
    async with world.running(world.build_aggregator()) as aggregator:
        runs = [
            asyncio.create_task(kind(world, aggregator, name, silent=name == silent).run())
            for name in world.federation.charter.silos
        ]
        await submit(world, aggregator, spec)
        view: dict[str, Any] = {"version": 0, "state": "waiting"}
        der = world.federation.certificate_der("researcher")
        async with asyncio.timeout(60), client_of(aggregator.app, der) as client:
            while view["state"] in ("waiting", "running"):
                asked = {"after": view["version"], "wait_s": 20}
                answer = await client.get(f"/v1/jobs/{spec.job}", params=asked)
                view = answer.json() if answer.status_code == 200 else view
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
    return view
