"""An aggregator that is the one server: no round without room for it, no key for a job that is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from privacy.canonical import canonical_bytes
from tests.aggregator_world import client_of, on_loop
from tests.he_world import HeWorld
from tests.pairwise_world import PairwiseWorld

ROOM = {"storage_bytes_max": 2000}


@pytest.mark.parametrize("kind", [PairwiseWorld, HeWorld])
@on_loop
async def test_a_round_for_which_there_is_no_room_on_disk_is_not_offered(
    tmp_path: Path, kind: type[PairwiseWorld]
) -> None:
    world = kind(tmp_path, settings=ROOM)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(world.spec(parameters=200), silos)
        (ended,) = view["history"]
        assert "storage: expected at most 2000 bytes" in ended["reason"]
        assert not any(silo.sent for silo in silos)
    assert not any("/files/" in path for _, path, _ in world.calls)


@on_loop
async def test_a_key_is_neither_taken_nor_handed_out_once_its_job_is_over(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    async with world.running() as aggregator:
        await world.run_job(world.spec(), world.silos())
        async with client_of(aggregator.app, world.federation.certificate_der("silo-1")) as client:
            put = await client.put("/v1/jobs/heart/he-key", content=canonical_bytes([]))
            got = await client.get("/v1/jobs/heart/he-key")
    assert (put.status_code, got.status_code) == (409, 409)
