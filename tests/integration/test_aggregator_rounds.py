"""Whole rounds through the aggregator and its share servers, in one process, with real messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np

from privacy.update import model_bytes
from tests.aggregator_world import Silo, World, client_of, on_loop, submit


@on_loop
async def test_a_job_of_four_silos_opens_the_mean_of_each_round_and_ends_finished(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(parameters=5)
    updates = [np.full(5, 0.25 * number, dtype=np.float32) for number in range(1, 5)]
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Silo(world, aggregator, f"silo-{n + 1}", updates[n]) for n in range(4)]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
        der = world.federation.certificate_der("researcher")
        async with client_of(aggregator.app, der) as client:
            view = (await client.get("/v1/jobs/heart")).json()
            model = (await client.get(f"/v1/models/{view['model']}")).content
            evidence = json.loads((await client.get("/v1/jobs/heart/evidence")).content)
    assert (view["state"], view["round"], view["openings"]) == ("finished", 2, 2)
    # Both rounds add the mean 0.625; stochastic rounding moves each by less than one step of 2^-20.
    assert np.allclose(np.frombuffer(model, dtype="<f4"), 1.25, atol=1e-5)
    assert model == model_bytes(np.frombuffer(model, dtype="<f4"))
    assert [result.openings for result in silos[0].results] == [1, 1]
    assert len(evidence["rounds"]) == 2
    assert sorted(evidence["rounds"][0]["manifests"]) == ["silo-1", "silo-2", "silo-3", "silo-4"]
