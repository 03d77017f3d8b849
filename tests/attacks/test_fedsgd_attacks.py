"""Shared noise under attack: colluders, coordinators that ask for less of it, sums of too few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sealsum_verify.claim import check_claim
from sealsum_verify.encoding import Fault
from sealsum_verify.messages import Roster
from sealsum_verify.offers import Job
from sealsum_verify.verify import verify_pack

from policies.findings import PolicyRefusal
from policies.gates import admit_plan, check_survivors, clear_cohort
from policies.loader import load_threat_model
from privacy.canonical import canonical_bytes
from privacy.dp.integer_noise import integer_mechanism
from privacy.plan import DpTerms, JobSpec, RoundPlan, TrainingTerms, VectorTerms
from sealsum.job_judgement import job_findings
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from tests.evidence_pack import edited, files_of, honest_records, resigned
from tests.federation import Federation, demo_policy_text
from tests.unit.policies.policies_terms import Round, altered, bent_text, planned_round

STEP = TrainingTerms(algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=0.5)
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=18)
SHARED = DpTerms(
    model="distributed",
    noise_shares=2,
    unit="patient",
    sample_rate=0.5,
    noise_multiplier=5.0,
    clip_l2=1.0,
    normaliser=50.0,
    delta=1e-5,
)
JOB: dict[str, Any] = {"training": STEP, "dp": SHARED, "vector": VECTOR, "rounds": 2, "min_silos": 3}
FALLBACK = {"round": 3, "job": 6, "lifetime": 13}
SCHEMES = ("additive", "pairwise")


def policy_text(scheme: str = "additive") -> str:
    """The demonstration's threat model for a scheme, with noise that may be shared: one colluding silo."""
    changes: dict[str, object] = {"require.dp.model": "distributed", "limits.epsilon_fallback": FALLBACK}
    return bent_text(demo_policy_text(scheme), changes)


# --- colluders take their noise out ---

WIDE = model_terms("logistic", 4000)
NOBODY = SHARED.model_copy(update={"sample_rate": 1e-12})


def noise_of_a_silo(dp: DpTerms) -> NDArray[np.float64]:
    """What a silo sends when nobody is sampled, in the units of σ·C."""
    held = Records(np.zeros((2, 4000), dtype=np.float32), np.zeros(2, dtype=np.float32))
    start = np.zeros(WIDE.parameters, dtype=np.float32)
    steps = dp_fedsgd(Task(WIDE, STEP, dp, VECTOR, start, ADAPTERS["logistic"], held)).steps
    scale = integer_mechanism(dp, STEP, VECTOR, WIDE.parameters).steps_per_unit
    return steps / (scale * dp.noise_multiplier * dp.clip_l2)


def left_of_the_sum(dp: DpTerms, survivors: int, colluding: int) -> NDArray[np.float64]:
    """Colluders subtract what they know of an opened sum: their own updates."""
    updates = [np.concatenate([noise_of_a_silo(dp) for _ in range(10)]) for _ in range(survivors)]
    opened = np.sum(updates, axis=0)
    return np.asarray(opened - np.sum(updates[:colluding], axis=0))


def test_what_colluders_cannot_subtract_still_has_all_the_noise_that_is_charged() -> None:
    """min_survivors 3 − 1 colluding = 2 shares: exactly σ is left in the smallest sum."""
    left = left_of_the_sum(SHARED.model_copy(update={"sample_rate": 1e-12}), survivors=3, colluding=1)
    assert stats.kstest(left, "norm").pvalue > 1e-6


def test_one_share_too_many_leaves_less_noise_and_the_same_test_sees_it() -> None:
    short = NOBODY.model_copy(update={"noise_shares": 3})
    left = left_of_the_sum(short, survivors=3, colluding=1)
    assert stats.kstest(left, "norm").pvalue < 1e-6
    assert np.std(left) == pytest.approx((2 / 3) ** 0.5, rel=0.02)


def test_full_noise_leaves_all_of_it_when_every_silo_but_one_colludes() -> None:
    full = NOBODY.model_copy(update={"model": "local", "noise_shares": None})
    assert stats.kstest(left_of_the_sum(full, survivors=3, colluding=2), "norm").pvalue > 1e-6


# --- a share too many, refused on both sides and by the auditor ---


def shared_round(scheme: str = "additive", **changes: Any) -> Round:
    """A round as the aggregator plans it, in a federation whose threat model admits shared noise."""
    federation = Federation(servers=2 if scheme == "additive" else 0, policy_text=policy_text(scheme))
    asked = federation.job_spec(**JOB | {"scheme": scheme} | changes)
    policy = load_threat_model(federation.policy_text)
    honest = planned_round(scheme)
    plan = federation.plan(
        asked, threshold=honest.plan.threshold, min_survivors=asked.min_silos, he=honest.plan.he
    )
    return Round(federation, policy, asked, plan)


def judged(round_: Round, plan: RoundPlan | None = None, own: str | None = None) -> list[str]:
    """The rules by which the gate of silos and servers refuses an offer; silos ask their own model too."""
    policies = [round_.policy, *([load_threat_model(own)] if own else [])]
    try:
        admit_plan(policies, round_.offer(plan), round_.signed_job(), round_.charter)
    except PolicyRefusal as refusal:
        return [finding.rule for finding in refusal.findings]
    return []


def with_shares(shares: int, noise: float = 7.0) -> DpTerms:
    return SHARED.model_copy(update={"noise_shares": shares, "noise_multiplier": noise})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_plan_with_one_share_too_many_is_refused_by_every_party_that_judges_plans(scheme: str) -> None:
    assert judged(shared_round(scheme, dp=with_shares(2))) == []
    assert judged(shared_round(scheme, dp=with_shares(3))) == ["noise_shares"]


def test_the_researchers_own_check_refuses_it_before_anything_is_sent() -> None:
    round_ = shared_round(dp=with_shares(3))
    assert [one.rule for one in job_findings(round_.policy, round_.job, round_.charter)] == ["noise_shares"]


def test_a_silo_that_fears_more_colluders_refuses_what_its_federation_admits() -> None:
    fearful = bent_text(policy_text(), {"assume.silos.max_colluding": 2, "limits.min_silos_open": 4})
    assert "noise_shares" in judged(shared_round(min_silos=3), own=fearful)


def test_a_silo_that_requires_local_noise_refuses_shared_noise() -> None:
    assert "dp_model" in judged(shared_round(), own=demo_policy_text())


LOOSER: dict[str, dict[str, Any]] = {
    "a larger clip": {"clip_l2": 2.0},
    "less noise": {"noise_multiplier": 0.8},
    "larger samples": {"sample_rate": 1.0},
    "more shares": {"noise_shares": 3},
    "a smaller divisor": {"normaliser": 5.0},
    "a larger δ": {"delta": 1e-3},
}


@pytest.mark.parametrize("what", LOOSER)
def test_a_coordinator_that_plans_with_looser_terms_than_were_signed_is_refused(what: str) -> None:
    round_ = shared_round()
    loose = altered(round_.plan, dp=SHARED.model_copy(update=LOOSER[what]))
    assert "altered_dp" in judged(round_, loose)


@pytest.mark.parametrize("what", ["a larger clip", "less noise", "more shares", "a larger δ"])
def test_a_researcher_who_signs_looser_terms_is_refused_by_the_threat_model(what: str) -> None:
    assert judged(shared_round(dp=SHARED.model_copy(update=LOOSER[what]))) != []


def test_a_coordinator_that_coarsens_the_grid_is_refused() -> None:
    round_ = shared_round()
    coarse = altered(round_.plan, vector=VectorTerms(coordinate_bound=8.0, scale_bits=6))
    assert {"altered_vector", "noise_grid"} <= set(judged(round_, coarse))


# --- too few survivors ---


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("survivors", [("silo-1",), ("silo-1", "silo-2")])
def test_a_sum_of_fewer_silos_than_shares_and_colluders_never_opens(
    scheme: str, survivors: tuple[str, ...]
) -> None:
    round_ = shared_round(scheme)
    admitted = admit_plan([round_.policy], round_.offer(), round_.signed_job(), round_.charter)
    servers = tuple(round_.charter.share_servers) or ("aggregator",)
    sets = round_.survivors(*survivors, servers=servers)
    with pytest.raises(PolicyRefusal, match="survivors"):
        clear_cohort(admitted, sets, round_.charter, round_.policy, opened_before=False)
    with pytest.raises(PolicyRefusal, match="survivors"):
        check_survivors(admitted, sets[0].message, round_.charter, round_.policy)


# --- the auditor ---


@dataclass(frozen=True)
class Verdict:
    passed: int
    fault: str


def audited(pack: bytes) -> Verdict:
    report = verify_pack(pack)
    return Verdict(report.passed, str(report.fault or ""))


EVIDENCE: dict[str, Any] = {"training": STEP, "dp": SHARED, "vector": VECTOR}


def test_a_pack_of_shared_noise_verifies_with_both_epsilons_in_their_brackets() -> None:
    report = verify_pack(honest_records(1, **EVIDENCE).pack())
    assert report.verified, report.fault
    for bracket in report.epsilon.values():
        assert bracket.fallback is not None
        assert bracket.lower <= bracket.claimed <= bracket.upper + 1e-4
        assert bracket.fallback.lower <= bracket.fallback.claimed <= bracket.fallback.upper + 1e-4
        assert bracket.claimed < bracket.fallback.claimed


def test_the_auditor_refuses_a_share_too_many_though_all_parties_signed_it() -> None:
    verdict = audited(honest_records(1, **EVIDENCE | {"dp": with_shares(3)}).pack())
    assert verdict.passed == 11
    assert "noise_shares: every sum holds the noise of 2 honest silos" in verdict.fault


NO_REPLAY = {"dp/accountant-replay.json": canonical_bytes({"delta": None, "silos": {}})}
"""What nobody's reservations are replayed as."""


def test_shares_of_an_algorithm_whose_steps_do_not_add_up_make_no_job_and_no_claim() -> None:
    records = honest_records(1, **EVIDENCE)
    several = STEP.model_copy(update={"algorithm": "dp_fedavg", "local_steps": 2})
    job: JobSpec = altered(records.job, training=several)
    with pytest.raises(ValueError, match="noise is shared with dp_fedsgd"):
        JobSpec.model_validate(job.model_dump())
    terms = job.model_dump(mode="json")
    with pytest.raises(Fault, match="noise is shared by algorithms of one step"):
        check_claim({}, NO_REPLAY, Job({}, terms, job.digest), {}, [], Roster("", {"policy_text": ""}, {}))


CLAIM_EDITS: dict[str, dict[str, str]] = {
    "a smaller fallback": {"epsilon_fallback": "0.5000"},
    "the fallback of full noise": {},
    "a larger fallback than can be": {"epsilon_fallback": "30.0000"},
    "a smaller RDP value of the fallback": {"epsilon_fallback_rdp": "0.5000"},
}


@pytest.mark.parametrize("attack", CLAIM_EDITS)
def test_a_claim_with(attack: str) -> None:
    records = honest_records(1, **EVIDENCE)

    def edit(claim: Any) -> None:
        row = claim["silos"]["silo-1"]
        row.update(CLAIM_EDITS[attack] or {"epsilon_fallback": row["epsilon"]})

    verdict = audited(resigned(edited(files_of(records.pack()), "dp/claim.json", edit), records))
    assert verdict.passed == 11
    assert verdict.fault.startswith("dp/claim.json")


def test_a_claim_that_is_silent_about_the_secure_sum_is_refused() -> None:
    records = honest_records(1, **EVIDENCE)

    def edit(claim: Any) -> None:
        claim["statement"] = claim["statement"].split(" If the secure sum fails")[0]

    verdict = audited(resigned(edited(files_of(records.pack()), "dp/claim.json", edit), records))
    assert (verdict.passed, "statement" in verdict.fault) == (11, True)
