"""Whole rounds with validity through the real servers: proofs, dropouts, restarts, and the oracle's sum."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from aggregator.round_flow import RoundFlow
from privacy.plan import VectorTerms
from privacy.secagg.validity.sharing import PART_ELEMENTS
from tests.aggregator_world import _Latest, on_loop
from tests.validity_world import NORM_BOUND, ProvingSilo, oracle, world


def assert_sum_of(silos: list[ProvingSilo], outcome: Any) -> None:
    assert outcome.view["state"] == "finished", outcome.view["reason"]
    np.testing.assert_array_equal(outcome.model, oracle(silos).astype(np.float32))


@pytest.mark.parametrize("servers", [2, 3])
@on_loop
async def test_a_round_of_proven_updates_opens_the_oracles_sum(tmp_path: Path, servers: int) -> None:
    here = world(tmp_path, servers=servers)
    silos = here.silos()
    outcome = await here.run_job(here.spec(), silos)
    assert [silo.faults for silo in silos] == [[], [], [], []]
    assert outcome.refused == {}
    assert_sum_of(silos, outcome)


@on_loop
async def test_two_rounds_in_a_row_toss_their_own_coins(tmp_path: Path) -> None:
    here = world(tmp_path)
    silos = here.silos()
    outcome = await here.run_job(here.spec(rounds=2), silos)
    assert (outcome.view["state"], outcome.view["openings"]) == ("finished", 2)
    coins = [
        body["coin"] for kind, body in here.log_of(here.servers["server-0"].store) if kind == "coin_settled"
    ]
    assert len(set(coins)) == 4


@pytest.mark.parametrize("parameters", [5, 64, 1009])
@on_loop
async def test_updates_at_the_bound_always_pass(tmp_path: Path, parameters: int) -> None:
    """Of any direction: one coordinate, a random one, all alike."""
    here = world(tmp_path)
    random = np.random.default_rng(parameters).standard_normal(parameters)
    directions = [np.eye(parameters)[0], -np.eye(parameters)[-1], random, np.ones(parameters)]
    silos = here.silos()
    for silo, direction in zip(silos, directions, strict=True):
        longest = (direction / np.linalg.norm(direction) * NORM_BOUND).astype(np.float32)
        silo.update = longest * np.float32(1 - 2.0**-23)
    outcome = await here.run_job(here.spec(parameters), silos)
    assert outcome.refused == {}
    assert_sum_of(silos, outcome)


@on_loop
async def test_a_silo_whose_own_update_is_too_long_refuses_and_nothing_of_it_leaves(tmp_path: Path) -> None:
    here = world(tmp_path)
    silos = here.silos(silo_2={"value": 1.01 * NORM_BOUND})
    outcome = await here.run_job(here.spec(), silos)
    assert ["norm is beyond norm_bound" in str(fault) for fault in silos[1].faults] == [True]
    assert not [path for name, _, path in here.calls if name == "silo-2" and "/parts/" in path]
    assert_sum_of([silos[0], *silos[2:]], outcome)


@pytest.mark.parametrize(
    ("leaves", "counted", "why"),
    [
        ("shares", False, None),  # not accepted by any server: no candidate
        ("prove", False, "validity.not_proven"),
        ("witness", False, "validity.not_proven"),
        ("desk", True, None),  # the first server has its proof: like a manifest, it counts there
    ],
)
@on_loop
async def test_a_dropout_at_any_step_leaves_the_sum_of_the_others(
    tmp_path: Path, leaves: str, counted: bool, why: str | None
) -> None:
    here = world(tmp_path)
    silos = here.silos(silo_3={"leaves": leaves})
    outcome = await here.run_job(here.spec(), silos)
    assert outcome.refused == ({} if why is None else {"silo-3": [why]})
    assert_sum_of(silos if counted else [*silos[:2], silos[3]], outcome)


@on_loop
async def test_too_many_dropouts_end_the_round_and_nothing_is_opened(tmp_path: Path) -> None:
    here = world(tmp_path)
    silos = here.silos(silo_1={"leaves": "prove"}, silo_3={"leaves": "witness"})
    outcome = await here.run_job(here.spec(), silos)
    assert (outcome.view["state"], outcome.view["openings"]) == ("failed", 0)
    assert "survivors_below_minimum" in outcome.view["reason"]


@on_loop
async def test_a_silo_that_restarts_between_shares_and_proof_is_a_dropout(tmp_path: Path) -> None:
    here = world(tmp_path)
    silos = here.silos(silo_4={"restarts": True})
    outcome = await here.run_job(here.spec(), silos)
    assert ["restarted after it had shared" in str(fault) for fault in silos[3].faults] == [True]
    assert outcome.refused == {"silo-4": ["validity.not_proven"]}
    assert_sum_of(silos[:3], outcome)


@on_loop
async def test_servers_that_restart_before_every_call_of_the_aggregator_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a toss, a check or a verdict rests on is on disk before it is spoken."""
    here = world(tmp_path)
    restarts = 0
    usual = _Latest.handle_async_request

    async def anew(self: Any, request: httpx.Request) -> httpx.Response:
        nonlocal restarts
        restarts += 1
        self._world.start_server(self._server)
        return await usual(self, request)

    monkeypatch.setattr(_Latest, "handle_async_request", anew)
    silos = here.silos()
    outcome = await here.run_job(here.spec(), silos)
    assert restarts > 40
    assert_sum_of(silos, outcome)


@on_loop
async def test_every_call_of_the_aggregator_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(tmp_path)
    usual = _Latest.handle_async_request

    async def twice(self: Any, request: httpx.Request) -> httpx.Response:
        first = await usual(self, request)
        raw = await first.aread()
        if first.is_success and not request.url.path.endswith(("/finish", "/rounds")):
            again = await (await usual(self, request)).aread()
            assert again == raw, request.url.path
        return httpx.Response(first.status_code, headers=first.headers, content=raw)

    monkeypatch.setattr(_Latest, "handle_async_request", twice)
    silos = here.silos()
    assert_sum_of(silos, await here.run_job(here.spec(), silos))


@on_loop
async def test_servers_that_restart_while_silos_prove_change_nothing(tmp_path: Path) -> None:
    here = world(tmp_path)

    def restart() -> None:
        done = threading.Event()
        here.loop.call_soon_threadsafe(
            lambda: ([here.start_server(s) for s in list(here.servers)], done.set())
        )
        assert done.wait(10)

    everybody = threading.Barrier(4, action=restart)

    def together(inbox: Any) -> Any:
        everybody.wait(20)
        return inbox

    silos = here.silos(**{f"silo_{n}": {"shown": together} for n in range(1, 5)})
    assert_sum_of(silos, await here.run_job(here.spec(), silos))


@on_loop
async def test_an_aggregator_that_stops_while_silos_prove_ends_the_round_unopened(tmp_path: Path) -> None:
    here = world(tmp_path)

    def stop(inbox: Any) -> Any:
        assert here.aggregator is not None
        for silo in silos:
            silo.stopping.set()
        here.loop.call_soon_threadsafe(here.aggregator.state.bell.silence)
        return inbox

    silos = here.silos(silo_1={"shown": stop})
    outcome = await here.run_job(here.spec(), silos)
    assert outcome.view["openings"] == 0
    assert not any(kind == "sum_opened" for kind, _ in outcome.log)
    for server in here.servers.values():
        assert not any(kind == "share_released" for kind, _ in here.log_of(server.store))


@on_loop
async def test_an_aggregator_that_crashes_after_the_record_opens_the_very_same_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(Exception):
        pass

    async def crash(self: RoundFlow, *_: Any) -> None:
        for silo in silos:
            silo.stopping.set()
        self._state.bell.silence()
        raise Crash

    here = world(tmp_path)
    silos = here.silos()
    with monkeypatch.context() as patched:
        patched.setattr(RoundFlow, "open_and_publish", crash)
        with pytest.raises(Crash):
            await here.run_job(here.spec(), silos)
    aggregator = here.aggregator = here.build_aggregator()
    async with here.running(aggregator):
        await aggregator.state.bell.wait_for(
            lambda: (
                True if any(k == "model_published" for k, _ in here.log_of(aggregator.state.store)) else None
            ),
            20,
        )
        published = next(b for k, b in here.log_of(aggregator.state.store) if k == "model_published")
        model = np.frombuffer(aggregator.state.models.path(published["model"]).read_bytes(), dtype="<f4")
        np.testing.assert_array_equal(model, oracle(silos).astype(np.float32))


@pytest.mark.slow
@on_loop
async def test_a_vector_of_several_parts_is_proven_and_summed_across_their_edges(tmp_path: Path) -> None:
    here = world(tmp_path)
    parameters = PART_ELEMENTS * 2 + 5
    silos = here.silos()
    random = np.random.default_rng(1)
    for silo in silos:
        raw = random.standard_normal(parameters).astype(np.float32)
        silo.update = raw / np.float32(np.linalg.norm(raw) / NORM_BOUND * 1.001)
    vector = VectorTerms(coordinate_bound=4.0, scale_bits=20)
    outcome = await here.run_job(here.spec(parameters, vector=vector, round_deadline_s=60), silos)
    assert outcome.refused == {}
    assert_sum_of(silos, outcome)
