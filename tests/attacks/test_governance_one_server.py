"""Revocation where the aggregator is the one server: a sum that nobody can be taken out of stays closed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggregator.succession import assert_none_revoked
from privacy.canonical import canonical_bytes
from privacy.errors import NotAllowed, Unprocessable
from privacy.ids import PartyId
from privacy.wire.envelope import Envelope
from tests.aggregator_world import on_loop
from tests.federation import Federation
from tests.pairwise_world import AnyStep, CarriedSilo, PairwiseWorld


@dataclass
class Revoked(CarriedSilo):
    """Goes on until it is turned away."""

    def run(self) -> None:
        try:
            super().run()
        except NotAllowed as turned_away:
            self.faults.append(turned_away)


@pytest.mark.parametrize("step", ["shares", "consistency", "unmask"])
@on_loop
async def test_a_sum_with_a_silo_in_it_that_was_revoked_meanwhile_stays_closed(
    tmp_path: Path, step: AnyStep
) -> None:
    world = PairwiseWorld(tmp_path)
    federation = world.federation
    gone = federation.charter.member(PartyId("silo-4"))
    members = tuple(member for member in federation.charter.members if member != gone)
    later = federation.endorse(federation.next_charter(members=members, revoked=(gone.verify_key,)))

    def bring(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        assert world.call("PUT", "silo-1", "/v1/charter", canonical_bytes(later)).status_code == 201
        return messages

    async with world.running() as aggregator:
        silos = [
            world.silo("silo-1", 0.25, tampers={step: bring}),
            world.silo("silo-2", 0.5),
            world.silo("silo-3", 0.75),
            Revoked(world, "silo-4", 1.0),
        ]
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert ended["outcome"] == "aborted"
        assert "silo-4 was revoked while it was open; its sum stays closed" in ended["reason"]
        assert view["openings"] == int(step == "unmask"), "on record before, so it counts as used"
        assert view["model"] == view["initial_model"]
        # Whether it is still waiting when it is revoked is a matter of time; that it is nobody now is not.
        stranger = await asyncio.to_thread(world.call, "GET", "silo-4", "/v1/charter")
        assert (stranger.status_code, "not in the roster" in stranger.text) == (403, True)
        assert aggregator.state.held.charter.epoch == 2


def test_whoever_was_revoked_is_named_and_nobody_else_is_in_the_way() -> None:
    federation = Federation()
    plan = federation.plan(federation.job_spec())
    key = {member.id: member.verify_key for member in federation.charter.members}
    assert_none_revoked(plan, plan.silos[:3], {key[PartyId("silo-4")], "00" * 32})
    for party in ("silo-1", "server-1"):
        with pytest.raises(Unprocessable, match=f"round: {party} was revoked"):
            assert_none_revoked(plan, plan.silos, {key[PartyId(party)]})
