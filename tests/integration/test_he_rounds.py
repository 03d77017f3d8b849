"""``bfv`` and ``ckks`` carried: agents' halves and a real aggregator; sums equal the plain sum of survivors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aggregator_world import on_loop
from tests.he_world import HeWorld, he_federation
from tests.pairwise_world import oracle_model

SCHEMES = ("bfv", "ckks")


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_a_sum_of_all_is_exactly_the_plain_sum(tmp_path: Path, scheme: str) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    spec, silos = world.spec(), world.silos()
    async with world.running():
        view = await world.run_job(spec, silos)
        model = await world.model(view["model"])
    assert (view["state"], view["openings"]) == ("finished", 1), view
    assert model == oracle_model(spec, silos)
    assert not [silo.faults for silo in silos if silo.faults]
