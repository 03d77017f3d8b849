"""Shared noise holds for as many honest silos as were planned: with fewer left nothing is opened."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import policies
from privacy.plan import DpTerms, JobSpec, TrainingTerms, VectorTerms
from tests.aggregator_world import Silo, World, on_loop, submit
from tests.attacks.test_aggregator_rounds import _until_ended
from tests.federation import Federation

SHARED = Path(policies.__file__).parent / "profiles" / "demo-distributed.yaml"
STEP = TrainingTerms(algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=0.5)
NOISE = DpTerms(
    unit="patient",
    model="distributed",
    noise_shares=2,  # 3 that must survive, less the one that colludes
    sample_rate=1.0,
    noise_multiplier=8.0,
    clip_l2=1.0,
    normaliser=50.0,
    delta=1e-5,
)


def _job(federation: Federation) -> JobSpec:
    return federation.job_spec(
        training=STEP,
        dp=NOISE,
        rounds=2,
        vector=VectorTerms(coordinate_bound=8.0, scale_bits=20),
        min_silos=3,
        round_deadline_s=1,
    )


@pytest.mark.parametrize("odd", [{"silent": True}, {"refuses": True}])
@on_loop
async def test_with_two_of_four_silos_left_nothing_of_a_shared_noise_round_is_opened(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    world = World(tmp_path, Federation(policy_text=SHARED.read_text("utf-8")))
    async with world.running(world.build_aggregator()) as aggregator:
        names = world.federation.charter.silos
        silos = [Silo(world, aggregator, name, **(odd if name in names[2:] else {})) for name in names]
        runs = [asyncio.create_task(silo.run()) for silo in silos]
        await submit(world, aggregator, _job(world.federation))
        view = await asyncio.wait_for(_until_ended(world, aggregator, _job(world.federation)), 60)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        with aggregator.state.store.read() as read:
            log = b"\n".join(aggregator.state.store.log.lines(read.connection))
    assert (view["state"], view["openings"]) == ("failed", 0)
    assert {one["outcome"] for one in view["history"]} == {"aborted"}
    assert b"sum_opened" not in log
    for server in world.servers.values():
        with server.store.read() as read:
            assert b"share_released" not in b"\n".join(server.store.log.lines(read.connection))


@on_loop
async def test_with_three_of_four_silos_left_the_round_is_opened(tmp_path: Path) -> None:
    world = World(tmp_path, Federation(policy_text=SHARED.read_text("utf-8")))
    async with world.running(world.build_aggregator()) as aggregator:
        names = world.federation.charter.silos
        silos = [Silo(world, aggregator, name, silent=name == names[3]) for name in names]
        runs = [asyncio.create_task(silo.run()) for silo in silos]
        await submit(world, aggregator, _job(world.federation))
        await asyncio.wait_for(asyncio.gather(*runs), 60)
    assert [(one.outcome, one.survivors) for one in silos[0].results] == [("opened", names[:3])] * 2
