"""What the plan gate demands of shared and integer noise, and how a threat model admits it."""

from __future__ import annotations

from typing import Any

import pytest

from policies.explain import explain
from policies.loader import LoadedPolicy, load_threat_model
from policies.rules_plan import limit_findings
from privacy.dp.accountant import epsilon
from privacy.dp.events import fallback_event, round_event
from privacy.dp.integer_noise import least_coordinate_bound
from privacy.plan import DpTerms, RoundPlan, TrainingTerms, VectorTerms
from tests.unit.policies.policies_terms import Round, altered, bent, honest_round, rules_of

STEP = TrainingTerms(algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=0.5)
LOCAL = DpTerms(
    unit="patient", sample_rate=1.0, noise_multiplier=5.0, clip_l2=1.0, normaliser=50.0, delta=1e-5
)
SHARED = LOCAL.model_copy(update={"model": "distributed", "noise_shares": 2})
SHARED_QUIETLY = SHARED.model_copy(update={"noise_multiplier": 8.0})
ROUNDS = 10
FALLBACK = {"round": 1.5, "job": 5, "lifetime": 13}
DISTRIBUTED: dict[str, object] = {"require.dp.model": "distributed", "limits.epsilon_fallback": FALLBACK}


def policy(changes: dict[str, object] | None = None) -> LoadedPolicy:
    """The demonstration's threat model where noise may be shared."""
    return load_threat_model(bent(DISTRIBUTED | (changes or {})))


def plan(dp: DpTerms = SHARED, **changes: Any) -> RoundPlan:
    honest = honest_round()
    terms: dict[str, Any] = {
        "training": STEP,
        "dp": dp,
        "rounds": ROUNDS,
        "vector": VectorTerms(coordinate_bound=8.0, scale_bits=20),
    }
    return altered(honest.plan, **terms | changes)


def refused(judged: RoundPlan, by: LoadedPolicy | None = None) -> list[str]:
    honest: Round = honest_round()
    return [finding.rule for finding in limit_findings(by or policy(), judged, honest.charter)]


def test_shared_noise_passes_where_the_threat_model_admits_it_and_caps_what_it_risks() -> None:
    assert refused(plan()) == []


def test_full_noise_is_the_stricter_mechanism_and_passes_there_too() -> None:
    assert refused(plan(LOCAL)) == []


def test_shared_noise_is_refused_where_local_noise_is_required() -> None:
    assert refused(plan(SHARED_QUIETLY), load_threat_model(bent({}))) == ["dp_model"]


def test_without_caps_of_its_own_epsilon_fallback_has_those_of_epsilon_so_only_full_noise_passes() -> None:
    strict = load_threat_model(bent({"require.dp.model": "distributed"}))
    assert strict.model.spec.limits.of_fallback == strict.model.spec.limits.epsilon
    assert refused(plan(LOCAL), strict) == []
    assert refused(plan(), strict) == ["epsilon_fallback_round", "epsilon_fallback_job"]


@pytest.mark.parametrize(
    ("scope", "cap", "noise", "rounds"), [("round", 1.1, 4.4, 1), ("job", 3.0, 5.0, ROUNDS)]
)
def test_each_cap_on_epsilon_fallback_refuses_by_its_name(
    scope: str, cap: float, noise: float, rounds: int
) -> None:
    dp = SHARED.model_copy(update={"noise_multiplier": noise})
    own = fallback_event(dp, STEP)
    assert own is not None
    assert epsilon([own.model_copy(update={"steps": rounds})], dp.delta) > cap
    tight = policy({"limits.epsilon_fallback": FALLBACK | {scope: cap}})
    assert refused(plan(dp, rounds=rounds), tight) == [f"epsilon_fallback_{scope}"]
    assert refused(plan(dp, rounds=rounds)) == []


def test_the_sum_is_charged_at_all_noise_and_the_fallback_at_a_silos_own() -> None:
    whole, own = round_event(SHARED, STEP), fallback_event(SHARED, STEP)
    assert own is not None
    assert whole.noise_multiplier == 5.0
    assert own.noise_multiplier == pytest.approx(5.0 / 2**0.5)
    assert fallback_event(LOCAL, STEP) is None


def test_a_fallback_beyond_accounting_is_refused_by_name_and_not_computed() -> None:
    thin = SHARED.model_copy(update={"noise_multiplier": 0.42})
    assert "epsilon_fallback_unbounded" in refused(plan(thin, rounds=1))


# --- whose noise is in every sum ---


@pytest.mark.parametrize(
    ("shares", "rules"), [(1, []), (2, []), (3, ["noise_shares"]), (4, ["noise_shares"])]
)
def test_shares_are_at_most_the_least_survivors_without_colluders(shares: int, rules: list[str]) -> None:
    loud = SHARED.model_copy(update={"noise_shares": shares, "noise_multiplier": 12.0})
    assert refused(plan(loud)) == rules


@pytest.mark.parametrize(("colluding", "most"), [(0, 3), (1, 2)])
def test_each_threat_model_counts_its_own_colluders(colluding: int, most: int) -> None:
    judge = policy(
        {"assume.aggregator.colludes_with_silos": colluding, "assume.silos.max_colluding": colluding}
    )
    for shares in range(1, 5):
        loud = SHARED.model_copy(update={"noise_shares": shares, "noise_multiplier": 12.0})
        assert ("noise_shares" in refused(plan(loud), judge)) == (shares > most)


def test_more_survivors_allow_more_shares() -> None:
    loud = SHARED.model_copy(update={"noise_shares": 3, "noise_multiplier": 12.0})
    assert refused(plan(loud, min_survivors=4)) == []


# --- the grid ---


def test_a_grid_on_which_rounding_takes_much_of_the_clip_norm_is_refused() -> None:
    coarse = VectorTerms(coordinate_bound=8.0, scale_bits=9)
    assert refused(plan(vector=coarse)) == ["noise_grid"]


def test_noise_too_narrow_for_its_grid_is_refused() -> None:
    many = plan(LOCAL.model_copy(update={"noise_multiplier": 0.35}), rounds=1, parameters=1)
    rules = refused(altered(many, vector=VectorTerms(coordinate_bound=8.0, scale_bits=9)))
    assert "noise_deviation" in rules


def test_noise_too_wide_to_be_drawn_finely_is_refused() -> None:
    fine = VectorTerms(coordinate_bound=6.0, scale_bits=26)
    assert refused(plan(LOCAL, vector=fine, cohort=honest_round().plan.cohort)) == ["noise_deviation"]


def test_a_bound_that_honest_updates_would_pass_is_refused_and_the_least_one_named_is_admitted() -> None:
    vector = VectorTerms(coordinate_bound=8.0, scale_bits=20)
    least = least_coordinate_bound(SHARED, STEP, vector)
    tight = vector.model_copy(update={"coordinate_bound": least * (1 - 1e-9)})
    assert refused(plan(vector=tight)) == ["noise_headroom"]
    assert refused(plan(vector=vector.model_copy(update={"coordinate_bound": least}))) == []


def test_several_local_steps_are_no_mechanism_of_integers_and_have_no_such_rules() -> None:
    local_steps = STEP.model_copy(update={"algorithm": "dp_fedavg"})
    coarse = VectorTerms(coordinate_bound=8.0, scale_bits=9)
    assert refused(plan(LOCAL, training=local_steps, vector=coarse)) == []


# --- the words of a threat model ---


def test_looser_caps_without_shared_noise_are_an_idle_line() -> None:
    assert rules_of(bent({"limits.epsilon_fallback": FALLBACK})) == ["epsilon_fallback_idle"]


@pytest.mark.parametrize("scope", ["round", "job", "lifetime"])
def test_a_cap_on_the_fallback_below_that_on_epsilon_is_refused(scope: str) -> None:
    low = {"round": 1.0, "job": 3.0, "lifetime": 8.0} | {scope: 0.9}
    assert rules_of(bent(DISTRIBUTED | {"limits.epsilon_fallback": low})) == ["epsilon_fallback_caps"]


def test_a_fallback_above_what_any_cap_may_be_is_refused() -> None:
    huge = FALLBACK | {"lifetime": 101}
    assert rules_of(bent(DISTRIBUTED | {"limits.epsilon_fallback": huge})) != []


def test_the_explanation_tells_both_epsilons_and_what_the_smaller_rests_on() -> None:
    text = str(explain(policy().model))
    assert "at most ε = 3" in text
    assert "at most ε = 5" in text
    assert "secure sum" in text
    local = str(explain(load_threat_model(bent({})).model))
    assert "Should the secure sum fail" not in local


def test_an_absent_cap_is_explained_as_the_cap_on_epsilon() -> None:
    text = str(explain(load_threat_model(bent({"require.dp.model": "distributed"})).model))
    assert "only plans in which every silo adds all of the noise pass" in text
