"""An aggregator that is the one server: no round without room for it, no encrypted sum before its opening is
on record or to others than its survivors, no key for a job that is over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aggregator.desk import Desk
from privacy.canonical import canonical_bytes
from privacy.wire.envelope import Envelope
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


@on_loop
async def test_an_encrypted_sum_is_handed_out_once_its_opening_is_on_record_and_to_survivors_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HeWorld(tmp_path)
    got: dict[str, int] = {}
    recorded: list[tuple[str, bool]] = []
    open_step = Desk.open

    def watched(desk: Desk, step: str, inboxes: Any, accept: Any) -> None:
        assert world.aggregator is not None
        state = world.aggregator.state
        if state.current is not None:
            with state.store.read() as view:
                recorded.append((step, view.opening(state.current.ctx) is not None))
        open_step(desk, step, inboxes, accept)

    def fetches(when: str, *silos: str) -> Any:
        def look(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
            for silo in silos:
                path = f"/v1/rounds/{messages[0].context}/files/sum/0"
                got[f"{silo} {when}"] = world.call("GET", silo, path).status_code
            return messages

        return look

    monkeypatch.setattr(Desk, "open", watched)
    async with world.running():
        silos = world.silos(silo_4={"leaves": "ciphertexts"})
        steps: dict[str, Any] = {
            "ciphertexts": fetches("too early", "silo-1"),
            "opened": fetches("in time", "silo-1", "silo-4"),
        }
        silos[0].tampers.update(steps)  # type: ignore[arg-type]  # steps' names
        view = await world.run_job(world.spec(), silos)
    assert view["openings"] == 1
    assert got == {"silo-1 too early": 409, "silo-1 in time": 200, "silo-4 in time": 403}
    assert dict(recorded)["opened"]
    assert not dict(recorded)["ciphertexts"]
