"""Whole rounds under a joint key: the aggregator's application and agents' halves, dropouts and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aggregator_world import on_loop
from tests.pairwise_world import oracle_model
from tests.threshold_world import ThresholdWorld, threshold_federation

SCHEMES = ["threshold_bfv", "threshold_ckks"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_a_job_without_dropouts_opens_the_exact_sum_of_all_in_each_of_its_rounds(
    tmp_path: Path, scheme: str
) -> None:
    world = ThresholdWorld(tmp_path, threshold_federation(scheme))
    spec = world.spec(rounds=2)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []], view
        assert (view["state"], view["openings"], view["refusals"]) == ("finished", 2, [])
        first = oracle_model(spec, silos, 0)
        assert await world.model(view["model"]) == oracle_model(spec, silos, 1, first)
