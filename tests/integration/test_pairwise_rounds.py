"""Whole pairwise rounds: the aggregator's application and the agents' halves, with dropouts and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aggregator_world import on_loop
from tests.pairwise_world import PairwiseWorld, Step, oracle_model


@on_loop
async def test_a_job_without_dropouts_opens_the_sum_of_all_in_each_of_its_rounds(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert (view["state"], view["openings"], view["refusals"]) == ("finished", 2, [])
        first = oracle_model(spec, silos, 0)
        assert await world.model(view["model"]) == oracle_model(spec, silos, 1, first)


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "consistency", "unmask"])
@on_loop
async def test_the_sum_is_that_of_the_survivors_whichever_step_a_silo_leaves_at(
    tmp_path: Path, step: Step
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(round_deadline_s=2)
    async with world.running():
        silos = world.silos(silo_2={"leaves": step})
        view = await world.run_job(spec, silos)
        assert view["state"] == "finished", view
        # Who leaves after the upload is in the sum all the same: its peers take its masks off.
        survivors = [silo for silo in silos if silo.name != "silo-2" or step in ("consistency", "unmask")]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)
