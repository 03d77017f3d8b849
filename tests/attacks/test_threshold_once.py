"""A silo hands out one partial decryption, whatever crashes; and none for too few institutions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from policies.findings import PolicyRefusal
from privacy.ids import Context
from silo_agent.delivery import Delivery
from tests.aggregator_world import on_loop
from tests.federation import Federation
from tests.pairwise_world import Crashed, oracle_model
from tests.threshold_world import ThresholdWorld, threshold_federation

pytestmark = pytest.mark.slow


@on_loop
async def test_a_silo_that_crashes_while_its_partial_decryption_leaves_sends_the_same_bytes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ThresholdWorld(tmp_path)
    spec = world.spec()
    left: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    honest = Delivery.put_file

    def put_file(self: Delivery, context: Context, name: str, index: int, raw: bytes) -> None:
        honest(self, context, name, index, raw)
        if name == "partials":
            left[self._silo, index].append(raw)
            if self._silo == "silo-2" and len(left[self._silo, index]) == 1:
                raise Crashed

    monkeypatch.setattr(Delivery, "put_file", put_file)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        # Of two with noise of their own, less noise would be left about this silo's part of the key.
        assert [len(sent) for sent in left.values()] == [2 if silo == "silo-2" else 1 for silo, _ in left]
        assert all(len(set(sent)) == 1 for sent in left.values())
        assert await world.model(view["model"]) == oracle_model(spec, silos)


def _two_of_one_institution() -> Federation:
    """Two of four silos are one hospital's; three institutions are the least that a sum may have."""
    federation = threshold_federation()
    party = federation.parties["silo-2"]
    member = party.member.model_copy(update={"legal_entity": "hospital  1"})
    federation.parties["silo-2"] = replace(party, member=member)
    federation.charter = federation._make_charter()
    federation.endorsed_charter = federation.endorse(federation.charter)
    return federation


@on_loop
async def test_a_silo_uploads_nothing_for_a_joint_key_of_too_few_institutions(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path, _two_of_one_institution())
    async with world.running():
        silos = world.silos(silo_4={"leaves": "commit"})
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert "does not go on (sum.refused)" in ended["reason"]
        for silo in silos[:3]:
            refused = [fault for fault in silo.faults if isinstance(fault, PolicyRefusal)]
            assert {finding.rule for fault in refused for finding in fault.findings} <= {
                "survivors_legal_entities"
            }
        assert any(isinstance(fault, PolicyRefusal) for silo in silos for fault in silo.faults)
        assert not [path for _, path, _ in world.calls if "/files/" in path]
