"""A cohort that is a part of the silos is drawn, and whoever is asked to take part draws it again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sealsum_verify.drawn import check_cohort
from sealsum_verify.encoding import Fault
from sealsum_verify.messages import Roster

from policies.findings import PolicyRefusal
from policies.gates import AdmittedPlan, admit_plan
from policies.invited import Drawn, invited
from policies.loader import load_threat_model
from policies.planning import SESSION_BYTES, plan_round
from policies.rules_selection import cohort_is_drawn
from privacy.canonical import canonical_bytes
from privacy.ids import Digest, PartyId, SiloId
from privacy.plan import CohortMember, JobSpec, Phase, RoundPlan
from privacy.roster import Charter, Member
from privacy.wire.envelope import open_envelope
from privacy.wire.job_envelope import open_job
from privacy.wire.messages import MAX_BYTES, RoundOffer
from tests.federation import Federation

WORLD = Federation(silos=6)
POLICY = load_threat_model(WORLD.charter.policy_text, WORLD.charter.policy_parents)


def job_with(*phases: Phase, **changes: Any) -> JobSpec:
    """A job of ten rounds in these phases."""
    training = WORLD.job_spec().training.model_copy(update={"phases": phases})
    return WORLD.job_spec(training=training, rounds=10, **changes)


def planned(spec: JobSpec, number: int = 1, here: int = 6) -> RoundPlan:
    """An honest aggregator's plan, where the first so many silos are here."""
    return plan_round(
        spec,
        WORLD.charter,
        POLICY,
        silos=WORLD.charter.silos[:here],
        number=number,
        model=spec.initial_model,
        session=bytes(SESSION_BYTES),
    )


def with_cohort(plan: RoundPlan, *silos: str, pool: tuple[SiloId, ...] | None = None) -> RoundPlan:
    """The same plan with silos of somebody's choice."""
    members = tuple(
        CohortMember(silo=silo, verify_key=WORLD.charter.member(PartyId(silo)).verify_key)  # type: ignore[arg-type]  # tests name them
        for silo in sorted(silos)
    )
    return plan.model_copy(update={"cohort": members, "pool": plan.pool if pool is None else pool})


def judged(plan: RoundPlan, spec: JobSpec) -> list[str]:
    """Rules that the draw breaks."""
    return [finding.rule for finding in cohort_is_drawn(POLICY, plan, spec, WORLD.charter)]


def admitted(plan: RoundPlan, spec: JobSpec) -> AdmittedPlan:
    """By the gate that silos, share servers and the aggregator share."""
    envelope = WORLD.offer(plan, WORLD.sign_job(spec))
    offer = open_envelope(
        envelope,
        RoundOffer,
        kind="offer",
        context=None,
        verify_key_of=lambda party: WORLD.charter.member(party).verify_key,
        max_bytes=MAX_BYTES["offer"],
    )
    return admit_plan([POLICY], offer, open_job(offer.message.job, WORLD.charter), WORLD.charter)


def verified(plan: RoundPlan, spec: JobSpec, charter: Charter = WORLD.charter) -> None:
    """By the independent verifier."""
    document = json.loads(canonical_bytes(charter))
    roster = Roster(charter.digest, document, {one["id"]: one for one in document["members"]})
    check_cohort(
        json.loads(canonical_bytes(plan)), json.loads(canonical_bytes(spec)), roster, "rounds/0001.json"
    )


def test_so_many_silos_are_drawn_and_never_fewer_than_the_minimum() -> None:
    spec = job_with(Phase(until=2, silos=4), Phase(until=4, silos=2), Phase(until=6, silos=9))
    sizes = [len(planned(spec, number).silos) for number in (1, 3, 5, 7)]
    assert sizes == [4, 3, 6, 6]
    assert planned(spec, 1).pool == WORLD.charter.silos
    assert planned(spec, 7).pool == ()


def test_a_plan_without_a_draw_has_the_digest_that_it_had() -> None:
    assert "pool" not in json.loads(canonical_bytes(planned(job_with())))


@pytest.mark.parametrize("number", range(1, 6))
def test_the_cohort_that_was_drawn_passes_every_gate_and_any_other_none(number: int) -> None:
    spec = job_with(Phase(until=9, silos=4))
    plan = planned(spec, number)
    assert admitted(plan, spec).plan == plan
    verified(plan, spec)
    absent = next(silo for silo in plan.pool if silo not in plan.silos)
    chosen = with_cohort(plan, *plan.silos[:-1], absent)
    fewer = with_cohort(plan, *plan.silos[:-1])
    unsaid = with_cohort(plan, *plan.silos, pool=())
    for forged in (chosen, fewer, unsaid):
        assert judged(forged, spec) == ["cohort_not_drawn"]
        with pytest.raises(PolicyRefusal, match="not drawn as the job says"):
            admitted(forged, spec)
        with pytest.raises(Fault, match=r"plan\.(cohort|pool)"):
            verified(forged, spec)


def test_a_pool_of_strangers_and_a_pool_that_nobody_asked_for_are_refused() -> None:
    spec = job_with(Phase(until=1, silos=4))
    plan = planned(spec)
    stranger = with_cohort(plan, *plan.silos, pool=(*plan.pool, SiloId(PartyId("stranger"))))
    assert judged(stranger, spec) == ["cohort_not_drawn"]
    with pytest.raises(Fault, match="stranger is not in the roster"):
        verified(stranger, spec)
    later = planned(spec, 2)
    assert judged(later, spec) == []
    unasked = later.model_copy(update={"pool": later.silos})
    assert judged(unasked, spec) == ["cohort_not_drawn"]
    with pytest.raises(Fault, match="the round asks for every silo"):
        verified(unasked, spec)


def test_a_silos_own_threat_model_does_not_draw() -> None:
    spec = job_with(Phase(until=9, silos=4))
    own = replace(POLICY, digest=Digest("ab" * 32))
    assert (
        list(cohort_is_drawn(own, with_cohort(planned(spec), *WORLD.charter.silos), spec, WORLD.charter))
        == []
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(3, 6),
    st.one_of(
        st.integers(2, 8).map(lambda count: {"silos": count}),
        st.floats(0.01, 0.99).map(lambda share: {"silos_share": share}),
    ),
    st.lists(st.sampled_from(["north", "south", "east"]), min_size=6, max_size=6),
)
def test_the_verifier_draws_as_the_platform_does(
    number: int, here: int, size: dict[str, Any], entities: list[str]
) -> None:
    spec = job_with(Phase(until=9, **size))
    silos = iter(entities)
    members: tuple[Member, ...] = tuple(
        one.model_copy(update={"legal_entity": next(silos)}) if one.role == "silo" else one
        for one in WORLD.charter.members
    )
    charter = WORLD.charter.model_copy(update={"members": members})
    pool = WORLD.charter.silos[:here]
    plan = planned(spec, number, here)
    of = {silo: charter.member(silo).legal_entity for silo in pool}
    drawn = invited(Drawn(spec.digest, spec.training.phase(number), number), of, 3)
    verified(with_cohort(plan, *drawn, pool=tuple(sorted(pool))), spec, charter)


def test_a_phase_has_one_size() -> None:
    with pytest.raises(ValidationError, match="silos or silos_share, got both"):
        Phase(until=3, silos=4, silos_share=0.5)
