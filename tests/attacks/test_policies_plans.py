"""Plans that are altered, forged or too loose: each is refused by the rule made for it."""

from __future__ import annotations

from typing import Any

import pytest

from policies.findings import PolicyRefusal
from policies.gates import admit_plan
from policies.loader import load_threat_model
from policies.rules_binding import binding_findings
from policies.rules_epsilon import MAX_SIGNAL
from policies.rules_plan import PLAN_RULES, limit_findings, plan_findings
from policies.rules_validity import validity_as_required
from privacy.plan import CohortMember, DpTerms, JobSpec, RoundPlan, ServerSlot, ValidityClaim, VectorTerms
from privacy.query_terms import EvaluationTerms, LossMetric, SizeSkewStatistic, StatisticsTerms
from privacy.vector_terms import CONTROL, FurtherVector, MetricTerms
from tests.unit.policies.policies_terms import (
    Round,
    altered,
    bent,
    bent_demo,
    bent_policy,
    honest_round,
    planned_round,
    unjudged,
)

OTHER = "ab" * 32


def _binding(round_: Round, plan: RoundPlan, job: JobSpec | None = None) -> list[str]:
    return [finding.rule for finding in binding_findings(plan, job or round_.job, round_.charter)]


def _limits(round_: Round, plan: RoundPlan, changes: dict[str, object] | None = None) -> list[str]:
    policy = bent_policy(changes) if changes else round_.policy
    return [finding.rule for finding in limit_findings(policy, plan, round_.charter)]


def test_the_honest_plan_has_no_findings() -> None:
    honest = honest_round()
    assert plan_findings(honest.policy, honest.plan, honest.job, honest.charter) == []


ALTERED_FIELDS: dict[str, tuple[object, str]] = {
    "federation": ("elsewhere", "plan_federation"),
    "charter": (OTHER, "plan_charter"),
    "roster_epoch": (2, "plan_roster_epoch"),
    "policy": (OTHER, "plan_policy"),
    "job": ("lungs", "altered_job"),
    "job_digest": (OTHER, "altered_job_digest"),
    "rounds": (3, "altered_rounds"),
    "architecture": (OTHER, "altered_architecture"),
    "parameters": (4, "altered_parameters"),
    "dp": (None, "altered_dp"),
    "deadline_s": (31, "altered_deadline_s"),
    "model": (OTHER, "altered_model"),
    "min_survivors": (2, "minimum_below_job"),
}
"""Field → another value, and the rule that refuses it even when the aggregator signs the altered plan."""


@pytest.mark.parametrize("field", ALTERED_FIELDS)
def test_an_altered_field_is_refused_by_its_own_rule_alone(field: str) -> None:
    honest = honest_round()
    value, rule = ALTERED_FIELDS[field]
    assert _binding(honest, altered(honest.plan, **{field: value})) == [rule]


@pytest.mark.parametrize("field", ["training", "dp", "vector"])
def test_every_term_inside_training_dp_and_vector_is_the_researchers(field: str) -> None:
    honest = honest_round()
    terms = getattr(honest.plan, field)
    for name in type(terms).model_fields:
        value = getattr(terms, name)
        other = value + 1 if isinstance(value, int | float) else f"{value}x"
        plan = altered(honest.plan, **{field: terms.model_copy(update={name: other})})
        assert _binding(honest, plan) == [f"altered_{field}"], name


def test_an_altered_scheme_is_refused() -> None:
    honest = honest_round()
    plan = altered(honest.plan, scheme="none")
    assert _binding(honest, plan) == ["altered_scheme", "share_servers"]
    assert _limits(honest, plan) == ["scheme"]


def test_a_job_of_another_federation_or_charter_is_refused() -> None:
    honest = honest_round()
    job = altered(honest.job, federation="elsewhere", charter=OTHER)
    plan = altered(honest.plan, job_digest=job.digest)
    assert _binding(honest, plan, job) == ["job_federation", "job_charter"]


def test_a_later_round_may_start_from_another_model() -> None:
    honest = honest_round()
    assert _binding(honest, altered(honest.plan, round=2, model=OTHER)) == []


def test_a_cohort_member_that_is_not_enrolled_is_refused() -> None:
    honest = honest_round()
    stranger = CohortMember(silo="silo-9", verify_key=OTHER)  # type: ignore[arg-type]  # a plain name
    plan = altered(honest.plan, cohort=(*honest.plan.cohort, stranger))
    assert _binding(honest, plan) == ["cohort_stranger"]


def test_a_share_server_does_not_pass_as_a_silo() -> None:
    honest = honest_round()
    server = honest.federation.parties["server-0"].member
    member = CohortMember(silo=server.id, verify_key=server.verify_key)  # type: ignore[arg-type]  # a server's
    assert _binding(honest, altered(honest.plan, cohort=(*honest.plan.cohort, member))) == ["cohort_stranger"]


def test_a_cohort_member_with_another_key_is_refused() -> None:
    honest = honest_round()
    first = honest.plan.cohort[0].model_copy(update={"verify_key": OTHER})
    assert _binding(honest, altered(honest.plan, cohort=(first, *honest.plan.cohort[1:]))) == ["cohort_key"]


@pytest.mark.parametrize("case", ["missing", "swapped", "key", "stranger"])
def test_another_set_of_share_servers_is_refused(case: str) -> None:
    honest = honest_round(silos=4, servers=3)
    first, second, third = honest.plan.servers
    servers = {
        "missing": (first, second),
        "swapped": (second, first, third),
        "key": (first, second, third.model_copy(update={"verify_key": OTHER})),
        "stranger": (first, second, ServerSlot(server="server-9", verify_key=OTHER)),  # type: ignore[arg-type]  # a plain name
    }[case]
    assert _binding(honest, altered(honest.plan, servers=servers)) == ["share_servers"]


LIMITS: dict[str, tuple[dict[str, object], dict[str, Any]]] = {
    "share_server_count": ({"assume.share_servers.count": 3}, {}),
    "min_survivors": ({"limits.min_silos_open": 4}, {}),
    "max_dropouts": ({"limits.max_dropouts": 0}, {}),
    "algorithm": ({"allow.algorithms": []}, {}),
    "architecture": ({"allow.architectures": [f"sha256:{OTHER}"]}, {}),
    "dp_missing": ({}, {"dp": None}),
    "dp_clip_l2": ({"limits.clip_l2_max": 0.5}, {}),
    "dp_delta": ({"limits.delta_max": "0.000001"}, {}),
    "epsilon_round": ({"limits.epsilon.round": 0.01}, {}),
    "epsilon_job": ({"limits.epsilon": {"round": 0.15, "job": 0.15, "lifetime": 1}}, {}),
    "upload_bytes": ({"limits.upload_bytes_max": 15}, {}),
    "rounds": ({"limits.rounds_max": 1}, {}),
}
"""Rule → a threat model one limit of which the honest plan breaks, or the plan's change that breaks it."""


@pytest.mark.parametrize("rule", LIMITS)
def test_a_plan_looser_than_a_limit_is_refused_by_its_own_rule_alone(rule: str) -> None:
    honest = honest_round()
    policy, plan = LIMITS[rule]
    assert _limits(honest, altered(honest.plan, **plan), policy) == [rule]


def test_the_upload_limit_counts_the_weight_too() -> None:
    honest = honest_round()
    assert _limits(honest, honest.plan, {"limits.upload_bytes_max": 16}) == []


def test_a_cohort_below_its_own_minimum_is_refused() -> None:
    honest = honest_round()
    plan = altered(honest.plan, cohort=honest.plan.cohort[:3], min_survivors=4)
    assert _limits(honest, plan) == ["min_survivors_reachable"]


def test_ten_silos_of_one_hospital_are_one_hospital() -> None:
    honest = honest_round()
    members = tuple(
        member.model_copy(update={"legal_entity": f"St.  {word}"}) if member.role == "silo" else member
        for member, word in zip(
            honest.charter.members, ["", "", "", "", "MARY", "Mary", "mary", " mary"], strict=True
        )
    )
    charter = honest.charter.model_copy(update={"members": members})
    rules = [finding.rule for finding in limit_findings(honest.policy, honest.plan, charter)]
    assert rules == ["legal_entities"]


def test_two_share_servers_of_one_operator_are_refused() -> None:
    honest = honest_round()
    members = tuple(
        member.model_copy(update={"operator": "Cloud"}) if member.role == "share_server" else member
        for member in honest.charter.members
    )
    charter = honest.charter.model_copy(update={"members": members})
    rules = [finding.rule for finding in limit_findings(honest.policy, honest.plan, charter)]
    assert rules == ["share_server_operators"]


def test_dp_for_records_does_not_pass_for_patients() -> None:
    honest = honest_round()
    assert honest.plan.dp is not None
    plan = altered(honest.plan, dp=honest.plan.dp.model_copy(update={"unit": "record"}))
    assert _limits(honest, plan) == ["dp_unit"]


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("model", "central", "dp_model"),
        ("adjacency", "replace_one", "dp_adjacency"),
        ("sampling", "shuffle", "dp_sampling"),
    ],
)
def test_other_dp_terms_than_required_are_refused(field: str, value: str, rule: str) -> None:
    honest = honest_round()
    assert honest.plan.dp is not None
    plan = altered(honest.plan, dp=honest.plan.dp.model_copy(update={field: value}))
    assert _limits(honest, plan) == [rule]


def test_weights_by_example_count_are_refused_with_dp() -> None:
    honest = honest_round()
    plan = altered(honest.plan, training=honest.plan.training.model_copy(update={"weights": "examples"}))
    assert _limits(honest, plan) == ["weights_uncharged", "weight_share"]
    assert _limits(honest, plan, {"limits.max_weight_share": 1}) == ["weights_uncharged"]


def test_a_silo_with_too_large_a_share_is_refused() -> None:
    honest = honest_round()
    assert _limits(honest, altered(honest.plan, min_survivors=2)) == [
        "min_survivors",
        "max_dropouts",
        "weight_share",
    ]


def test_a_sum_that_could_wrap_around_the_ring_is_refused() -> None:
    honest = honest_round()
    plan = altered(honest.plan, vector=honest.plan.vector.model_copy(update={"scale_bits": 28}))
    assert _limits(honest, plan) == ["ring"]


@pytest.mark.parametrize(
    "terms",
    [
        {"noise_multiplier": 1e-9},
        {"noise_multiplier": 0.29, "sample_rate": 1e-9},
        {"noise_multiplier": 0.5, "sample_rate": 1.0},
    ],
)
def test_a_mechanism_beyond_accounting_is_refused_at_once_and_not_computed(terms: dict[str, float]) -> None:
    """A hostile plan must not buy minutes and gigabytes of every party's accountant."""
    honest = honest_round()
    assert honest.plan.dp is not None
    steps = int(MAX_SIGNAL * 0.25) + 1
    plan = altered(
        honest.plan,
        dp=honest.plan.dp.model_copy(update=terms),
        training=honest.plan.training.model_copy(update={"local_steps": steps}),
        rounds=1,
    )
    assert _limits(honest, plan) == ["epsilon_unbounded"]


def test_more_steps_than_are_accounted_for_are_refused() -> None:
    honest = honest_round()
    plan = altered(
        honest.plan, training=honest.plan.training.model_copy(update={"local_steps": 50_001}), rounds=2
    )
    assert _limits(honest, plan) == ["epsilon_unbounded"]


def _dp_of(plan: RoundPlan) -> dict[str, Any]:
    assert plan.dp is not None
    return plan.dp.model_dump()


def test_no_plan_rule_is_idle() -> None:
    """Each rule of the table finds something in a plan as bad as can be."""
    honest = honest_round()
    examples = honest.plan.training.model_copy(update={"weights": "examples"})
    hostile = altered(
        honest.plan,
        scheme="none",
        threshold=2,
        he="bfv-2048-40",
        dp=None,
        training=examples,
        cohort=honest.plan.cohort[:2],
        min_survivors=5,
        vector=honest.plan.vector.model_copy(update={"scale_bits": 30}),
        rounds=1000,
    )
    loose_dp = altered(honest.plan, cohort=honest.plan.cohort, min_survivors=2, rounds=100)
    loose = bent_policy(
        {"limits.clip_l2_max": 0.1, "limits.upload_bytes_max": 1, "assume.share_servers.count": 9}
    )
    strict = bent_policy({"allow.algorithms": [], "allow.architectures": [], "limits.epsilon.round": 0.001})
    one_operator = honest.charter.model_copy(
        update={"members": tuple(m.model_copy(update={"operator": "x"}) for m in honest.charter.members)}
    )
    checked = unjudged(bent({"require.validity": "range"}))
    crowd = altered(honest.plan, scheme="pairwise", cohort=honest.plan.cohort * 26)
    unsound = altered(honest.plan, validity=ValidityClaim(norm_bound=1e6))
    asking = altered(
        honest.plan,
        query=EvaluationTerms(model=honest.job.model, weights="0" * 64, metrics=(LossMetric(),)),
        training=honest.plan.training.model_copy(update={"algorithm": "dp_evaluation"}),
        dp=DpTerms.model_validate(
            {**_dp_of(honest.plan), "model": "distributed", "noise_shares": 50, "noise_multiplier": 1e6}
        ),
    )
    coarse = VectorTerms(coordinate_bound=1e-3, scale_bits=1)
    beside = altered(
        honest.plan,
        further=tuple(FurtherVector(name=name, coordinates=2, terms=coarse) for name in ("metrics", "more")),
        dp=DpTerms.model_validate(
            {**_dp_of(honest.plan), "metrics": MetricTerms(names=("accuracy",), noise_multiplier=1.0)}
        ),
    )
    told_apart = altered(
        loose_dp,
        query=StatisticsTerms(statistics=(SizeSkewStatistic(most=9),)),
        training=honest.plan.training.model_copy(update={"algorithm": "dp_statistics"}),
    )
    mean = FurtherVector(name=CONTROL, coordinates=3, opens_to="mean", terms=honest.plan.vector)
    published = altered(honest.plan, further=(mean,))
    plans = (hostile, loose_dp, crowd, unsound, asking, beside, told_apart, published)
    for rule in PLAN_RULES:
        assert any(
            list(rule(spec, plan, one_operator))
            for spec in (loose.model.spec, strict.model.spec, checked.spec)
            for plan in plans
        ), rule.__name__


def test_all_findings_of_all_threat_models_are_reported_together() -> None:
    honest = honest_round()
    own = bent_policy({"/metadata.name": "own", "limits.rounds_max": 1, "limits.clip_l2_max": 0.5})
    plan = altered(honest.plan, deadline_s=31)
    with pytest.raises(PolicyRefusal, match="refused by 3 rules") as refused:
        admit_plan([honest.policy, own], honest.offer(plan), honest.signed_job(), honest.charter)
    assert [finding.rule for finding in refused.value.findings] == [
        "altered_deadline_s",
        "dp_clip_l2",
        "rounds",
    ]
    assert "threat model own v1" in refused.value.findings[2].expected
    assert refused.value.exit_code == 3


def test_a_silos_own_stricter_threat_model_wins() -> None:
    honest = honest_round()
    own = bent_policy({"limits.epsilon.round": 0.01})
    admit_plan([honest.policy], honest.offer(), honest.signed_job(), honest.charter)
    with pytest.raises(PolicyRefusal, match="epsilon_round"):
        admit_plan([honest.policy, own], honest.offer(), honest.signed_job(), honest.charter)


def test_a_silos_own_looser_threat_model_loosens_nothing() -> None:
    honest = honest_round(bent({"limits.rounds_max": 1}))
    loose = bent_policy({"limits.rounds_max": 100})
    with pytest.raises(PolicyRefusal, match="rounds: "):
        admit_plan([honest.policy, loose], honest.offer(), honest.signed_job(), honest.charter)


def test_an_audit_threat_model_tolerates_limits_but_no_forgery() -> None:
    text = bent({"mode": "audit", "data_class": "synthetic", "limits.rounds_max": 1})
    audited = honest_round(text)
    admitted = admit_plan([audited.policy], audited.offer(), audited.signed_job(), audited.charter)
    assert [finding.rule for finding in admitted.tolerated] == ["rounds"]
    with pytest.raises(PolicyRefusal, match="altered_deadline_s"):
        admit_plan(
            [audited.policy],
            audited.offer(altered(audited.plan, deadline_s=31)),
            audited.signed_job(),
            audited.charter,
        )


def test_an_audit_threat_model_of_one_party_does_not_loosen_anothers() -> None:
    honest = honest_round(bent({"limits.rounds_max": 1}))
    audit = bent_policy({"mode": "audit", "data_class": "synthetic", "limits.rounds_max": 1})
    with pytest.raises(PolicyRefusal, match="refused by 1 rule"):
        admit_plan([honest.policy, audit], honest.offer(), honest.signed_job(), honest.charter)


# --- schemes with one server, and validity ---


@pytest.mark.parametrize("scheme", ["additive", "pairwise", "bfv", "ckks"])
def test_the_plan_that_the_aggregator_derives_has_no_findings(scheme: str) -> None:
    planned = planned_round(scheme)
    assert plan_findings(planned.policy, planned.plan, planned.job, planned.charter) == []


def test_a_threshold_below_what_withstands_the_threat_model_is_refused() -> None:
    planned = planned_round("pairwise")
    assert planned.plan.threshold == 3
    assert _limits(planned, altered(planned.plan, threshold=2)) == ["threshold"]


def test_a_silos_own_threat_model_asks_for_the_higher_threshold() -> None:
    """c = 3 of eight: 2t > 8 + 3, so t = 6; the federation's c = 1 is content with 5, and minimum 7 of 8."""
    planned = planned_round("pairwise", silos=8)
    assert planned.plan.threshold == 5
    changes: dict[str, object] = {
        "assume.aggregator.colludes_with_silos": 3,
        "limits.min_silos_open": 5,
    }
    own = load_threat_model(bent_demo("pairwise", changes))
    findings = limit_findings(own, planned.plan, planned.charter)
    assert [finding.rule for finding in findings] == ["threshold"]
    assert "at least 6 of 8" in findings[0].expected


def test_more_silos_than_pairwise_carries_are_refused() -> None:
    planned = planned_round("pairwise")
    crowd = tuple(
        CohortMember(silo=f"silo-{number:03}", verify_key=f"{number:064x}")  # type: ignore[arg-type]  # plain names
        for number in range(101)
    )
    plan = altered(planned.plan, cohort=crowd, threshold=100, min_survivors=100)
    assert "cohort_beyond_scheme" in _limits(planned, plan)
    assert "cohort_beyond_scheme" not in _limits(planned, altered(plan, cohort=crowd[:100]))


def test_ciphertexts_and_the_opened_sum_count_against_the_upload_limit() -> None:
    """One CKKS ciphertext for four elements: 18,496 bytes; and four elements of the sum in the ring."""
    planned = planned_round("ckks")
    size = 64 + 4096 * 36 // 8 + 4 * 4
    own = {"limits.upload_bytes_max": size}
    assert [
        f.rule
        for f in limit_findings(load_threat_model(bent_demo("ckks", own)), planned.plan, planned.charter)
    ] == []
    own = {"limits.upload_bytes_max": size - 1}
    assert [
        f.rule
        for f in limit_findings(load_threat_model(bent_demo("ckks", own)), planned.plan, planned.charter)
    ] == ["upload_bytes"]


CHECKED = {"require.validity": "l2_bound", "limits.update_norm_max": 2}


@pytest.mark.parametrize("required", ["l2_bound", "range"])
@pytest.mark.parametrize(
    ("claim", "rules"),
    [
        (None, ["validity_missing"]),
        (ValidityClaim(norm_bound=2.5), ["validity_bound"]),
        (ValidityClaim(norm_bound=2.0), []),
    ],
)
def test_a_plan_proves_no_looser_bound_than_the_threat_model_requires(
    required: str, claim: ValidityClaim | None, rules: list[str]
) -> None:
    honest = honest_round()
    spec = unjudged(bent({**CHECKED, "require.validity": required})).spec
    found = validity_as_required(spec, altered(honest.plan, validity=claim), honest.charter)
    assert [finding.rule for finding in found] == rules


def test_the_default_bound_on_an_update_is_strict() -> None:
    honest = honest_round()
    spec = unjudged(bent({"require.validity": "l2_bound"})).spec
    plan = altered(honest.plan, validity=ValidityClaim(norm_bound=1.5))
    assert [finding.rule for finding in validity_as_required(spec, plan, honest.charter)] == [
        "validity_bound"
    ]
