"""Whole rounds with validity through the real servers: proofs, dropouts, restarts, and the oracle's sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.aggregator_world import on_loop
from tests.validity_world import oracle, world


@pytest.mark.parametrize("servers", [2, 3])
@on_loop
async def test_a_round_of_proven_updates_opens_the_oracles_sum(tmp_path: Path, servers: int) -> None:
    here = world(tmp_path, servers=servers)
    silos = here.silos()
    outcome = await here.run_job(here.spec(), silos)
    assert [silo.faults for silo in silos] == [[], [], [], []]
    assert (outcome.view["state"], outcome.refused) == ("finished", {})
    np.testing.assert_array_equal(outcome.model, oracle(silos).astype(np.float32))
