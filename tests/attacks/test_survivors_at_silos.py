"""With one server, a silo judges itself whom it is summed with: by institutions, under both threat models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.findings import PolicyRefusal
from privacy.secagg.he.messages import SumManifest
from privacy.wire.envelope import Envelope
from tests.aggregator_world import on_loop
from tests.federation import Federation, demo_policy_text
from tests.he_world import HeWorld
from tests.pairwise_world import CarriedSilo, PairwiseWorld, oracle_model

Inbox = tuple[Envelope, ...]
COUNTED = "distinct_legal_entities: true"
UNCOUNTED = "distinct_legal_entities: false"


def two_of_one_institution(text: str, whose: str) -> Federation:
    """Two of four silos are one hospital's; three institutions are the least that a sum may have.

    The federation counts silos instead where it is the silo's ``own`` threat model that counts institutions.
    """
    if whose != "federation's":
        for old, new in (
            (COUNTED, UNCOUNTED),
            ("behaviour: malicious", "behaviour: honest_but_curious"),
            ("colludes_with_silos: 1", "colludes_with_silos: 0"),
            ("max_colluding: 1", "max_colluding: 0"),
        ):
            text = text.replace(old, new)
    federation = Federation(silos=4, servers=0, policy_text=text)
    party = federation.parties["silo-2"]
    member = party.member.model_copy(update={"legal_entity": "hospital  1"})
    federation.parties["silo-2"] = replace(party, member=member)
    federation.charter = federation._make_charter()
    federation.endorsed_charter = federation.endorse(federation.charter)
    return federation


def assert_refused(silo: CarriedSilo) -> None:
    (fault,) = silo.faults
    assert isinstance(fault, PolicyRefusal)
    assert {finding.rule for finding in fault.findings} == {"survivors_legal_entities"}


def assume(world: PairwiseWorld, wary: CarriedSilo, whose: str) -> None:
    """Whose threat model counts institutions, where one of both does not."""
    if whose != "federation's":
        wary.own_policy = world.federation.policy_text.replace(UNCOUNTED, COUNTED)
    if whose == "own, to be told only":
        told = str(wary.own_policy).replace("mode: enforce", "mode: audit")
        wary.own_policy = told.replace("data_class: patient", "data_class: synthetic")


@pytest.mark.parametrize("whose", ["federation's", "own"])
@on_loop
async def test_a_pairwise_silo_signs_no_set_of_too_few_institutions(tmp_path: Path, whose: str) -> None:
    world = PairwiseWorld(tmp_path, two_of_one_institution(demo_policy_text("pairwise"), whose))
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]
        assume(world, lied_to, whose)
        lied_to.shown["consistency"] = lambda inbox: tuple(one for one in inbox if one.sender != "silo-4")
        view = await world.run_job(spec, silos)
        assert_refused(lied_to)
        assert not {"consistency", "unmask"} & set(lied_to.sent)
        assert await world.model(view["model"]) == oracle_model(spec, silos)


@pytest.mark.parametrize("whose", ["federation's", "own"])
@on_loop
async def test_a_silo_that_holds_the_key_opens_no_sum_of_too_few_institutions(
    tmp_path: Path, whose: str
) -> None:
    world = HeWorld(tmp_path, two_of_one_institution(demo_policy_text("bfv"), whose))
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]
        assume(world, lied_to, whose)

        def fewer(inbox: Inbox) -> Inbox:
            honest = SumManifest.model_validate_json(inbox[0].body)
            changes: dict[str, Any] = {
                "survivors": honest.survivors[:3],
                "manifests": honest.manifests[:3],
            }
            lie = honest.model_copy(update=changes)
            return (world.federation.sign(lie, "he_sum", inbox[0].context, "aggregator"), *inbox[1:4])

        lied_to.shown["opened"] = fewer  # type: ignore[index]  # a step's name
        view = await world.run_job(world.spec(), silos)
        assert_refused(lied_to)
        (ended,) = view["history"]
        assert "silo silo-1 does not open the sum (sum.refused)" in ended["reason"]


@on_loop
async def test_an_own_threat_model_that_only_reports_stops_no_round_that_is_paid_for(tmp_path: Path) -> None:
    whose = "own, to be told only"
    world = PairwiseWorld(tmp_path, two_of_one_institution(demo_policy_text("pairwise"), whose))
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_4={"leaves": "masked"})
        assume(world, silos[0], whose)
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert await world.model(view["model"]) == oracle_model(spec, silos[:3])
