"""ε against published reference values, against RDP from above, and against composition rules."""

from __future__ import annotations

import math

import pytest
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privacy.dp.accountant import epsilon, epsilon_rdp, full_batch_epsilon, full_batch_mu, price
from privacy.dp.events import Adjacency, CappedEvent, DpEvent, MixedAdjacency, Stated, merged
from privacy.dp.full_batch import delta_at
from privacy.errors import ConfigurationError

ADJACENCIES = pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])


def event(rate: float, noise: float, steps: int) -> DpEvent:
    return DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "reference"),
    [
        (0.01, 0.6, 1000, 7.43),
        (0.01, 1.0, 20_000, 9.27),
        (0.1, 1.0, 100, 7.05),
        (0.1, 4.0, 10_000, 13.50),
        (0.3, 4.0, 20_000, 102.3),
        (1.0, 10.0, 100, 4.377),
    ],
)
def test_epsilon_matches_reference_values(rate: float, noise: float, steps: int, reference: float) -> None:
    # To half of the last digit that was published.
    digits = len(f"{reference}".partition(".")[2])
    assert epsilon([event(rate, noise, steps)], 1e-5) == pytest.approx(reference, abs=0.51 * 10**-digits)


@ADJACENCIES
def test_a_full_batch_is_charged_by_the_exact_formula(adjacency: Adjacency) -> None:
    # Dong, Roth, Su 2019, Corollary 2.13; a unit replaced moves the sum twice as far.
    cost = price([event(1.0, 8.0, 40), event(1.0, 4.0, 3)], 1e-5, adjacency)
    mu = math.sqrt(40 / 64 + 3 / 16) * (1 if adjacency == "add_remove" else 2)
    assert cost.mu == pytest.approx(mu, rel=1e-14)
    assert cost.accountant == "gaussian"
    delta = norm.cdf(mu / 2 - cost.epsilon / mu) - math.exp(cost.epsilon) * norm.cdf(
        -mu / 2 - cost.epsilon / mu
    )
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert delta <= 1e-5
    assert delta_at(mu, cost.epsilon) == pytest.approx(delta, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 30), st.sampled_from([1e-12, 1e-6, 1e-3]))
def test_mu_and_epsilon_are_each_other_s_inverse_rounded_to_the_safe_side(mu: float, delta: float) -> None:
    cost = full_batch_epsilon(mu, delta)
    again = full_batch_mu(cost, delta)
    assert again == pytest.approx(mu, rel=1e-6)
    assert full_batch_epsilon(again, delta) <= cost
    assert delta_at(mu, cost) <= delta


@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from([0.05, 0.2, 0.5, 1.0]),
    st.sampled_from([0.8, 1.5, 4.0]),
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from(["add_remove", "replace_one"]),
)
def test_every_argument_moves_the_cost_its_own_way_and_pld_never_exceeds_rdp(
    rate: float, noise: float, few: int, more: int, adjacency: Adjacency
) -> None:
    cost = price([event(rate, noise, few)], 1e-5, adjacency)
    assert cost.epsilon <= cost.epsilon_rdp * (1 + 1e-9)
    dearer = [
        price([event(rate, noise, few + more)], 1e-5, adjacency),
        price([event(rate, noise, few), event(0.1, 3.0, more)], 1e-5, adjacency),
        price([event(min(1.0, rate * 1.1), noise, few)], 1e-5, adjacency),
        price([event(rate, noise / 1.1, few)], 1e-5, adjacency),
        price([event(rate, noise, few)], 1e-6, adjacency),
        price([event(rate, noise, few)], 1e-5, "replace_one"),
    ]
    assert all(cost.epsilon <= other.epsilon * (1 + 1e-9) for other in dearer)


def test_replacing_a_unit_costs_about_twice_as_much_and_no_more_than_a_group_of_two() -> None:
    schedule = [event(0.1, 4.0, 1000)]
    once, replaced = epsilon(schedule, 1e-5), epsilon(schedule, 1e-5, "replace_one")
    assert 1.7 * once < replaced
    # Group privacy (Dwork, Roth 2014, Theorem 2.2): two steps of add/remove, at a δ that pays for both.
    apart = epsilon(schedule, 1e-5 / (1 + math.exp(replaced / 2)))
    assert replaced <= 2 * apart


@pytest.mark.parametrize(("rate", "noise", "eps"), [(0.1, 1.0, 0.5), (0.5, 0.7, 1.5), (0.01, 0.5, 0.2)])
def test_a_unit_replaced_matches_its_definition_by_integration(rate: float, noise: float, eps: float) -> None:
    """∫ max(0, P − e^ε·Q) of the antipodal pair, on a fine grid."""
    total, width = 0.0, 1e-3
    for index in range(int(20 / width)):
        x = -10 + index * width
        base, up, down = (math.exp(-((x - at) ** 2) / (2 * noise**2)) for at in (0, 1, -1))
        p, q = ((1 - rate) * base + rate * other for other in (up, down))
        total += max(0.0, p - math.exp(eps) * q)
    delta = total * width / (noise * math.sqrt(2 * math.pi))
    assert price([event(rate, noise, 1)], delta, "replace_one").epsilon == pytest.approx(eps, rel=1e-3)


def test_adjacencies_are_never_mixed_in_one_composition() -> None:
    mixed = [Stated(event(0.1, 1, 1), "add_remove"), Stated(event(0.1, 1, 1), "replace_one")]
    for accountant in (epsilon, epsilon_rdp, price):
        with pytest.raises(MixedAdjacency, match=r"expected add_remove .*, got replace_one in event 2"):
            accountant(mixed, 1e-5, "add_remove")
        with pytest.raises(MixedAdjacency, match=r"expected replace_one .*, got add_remove in event 1"):
            accountant(mixed, 1e-5, "replace_one")
    assert epsilon(mixed[:1], 1e-5) == epsilon([event(0.1, 1, 1)], 1e-5)


def test_a_central_limit_would_under_count_and_is_not_what_is_charged() -> None:
    # Bu, Dong, Long, Su 2020: μ = q·√(T·(e^(1/σ²) − 1)), "asymptotically".
    rate, noise, steps, delta = 0.01, 0.6, 1000, 1e-5
    limit = full_batch_epsilon(rate * math.sqrt(steps * math.expm1(1 / noise**2)), delta)
    at_least = (
        from_gaussian_mechanism(
            noise,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=1e-3,
            sampling_prob=rate,
        )
        .self_compose(steps)
        .get_epsilon_for_delta(delta)
    )
    assert limit < 0.85 * at_least
    assert epsilon([event(rate, noise, steps)], delta) >= at_least


@pytest.mark.slow
def test_many_cheap_steps_are_not_charged_for_the_grid() -> None:
    # At a fixed interval of 1e-3, rounding alone made this 5 % dearer.
    cost = price([event(0.001, 1.0, 100_000)], 1e-5, "add_remove")
    fine = from_gaussian_mechanism(1.0, value_discretization_interval=3e-5, sampling_prob=0.001)
    assert cost.epsilon == pytest.approx(fine.self_compose(100_000).get_epsilon_for_delta(1e-5), rel=1e-3)


def test_a_schedule_with_hardly_any_noise_is_priced_and_not_computed_for_minutes() -> None:
    for steps in (10, 10**7):
        cost = price([event(0.5, 0.01, steps)], 1e-5, "replace_one")
        assert 1000 < cost.epsilon < math.inf


def test_how_events_are_written_down_does_not_change_their_cost() -> None:
    apart = [event(0.2, 2.0, 5), event(0.1, 1.0, 3), event(0.2, 2.0, 5)]
    assert merged(apart) == (event(0.1, 1.0, 3), event(0.2, 2.0, 10))
    assert epsilon(apart, 1e-5) == epsilon(list(reversed(apart)), 1e-5)


def test_nothing_costs_nothing() -> None:
    assert epsilon([], 1e-5) == epsilon_rdp([], 1e-5) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_none_is_refused(delta: float) -> None:
    with pytest.raises(ConfigurationError, match=r"delta: expected a number above 0 and below 1"):
        price([event(0.1, 1.0, 1)], delta, "add_remove")


@pytest.mark.parametrize(
    "fault",
    [
        {"sample_rate": 0.0},
        {"sample_rate": 1.1},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": "nan"},
        {"steps": 0},
    ],
)
def test_a_mechanism_that_is_none_is_refused(fault: dict[str, object]) -> None:
    good: dict[str, object] = {"sample_rate": 0.1, "noise_multiplier": 1.0, "steps": 1}
    with pytest.raises(ValueError, match=next(iter(fault))):
        DpEvent.model_validate(good | fault)
    with pytest.raises(ValueError, match=next(iter(fault))):
        CappedEvent.model_validate(good | {"batch_cap": 5, "units_at_most": 9} | fault)


def test_composition_agrees_with_the_library_s_own_accountant() -> None:
    events = [event(0.5, 4.56, 4), event(1.0, 8.0, 3), event(0.1, 1.2, 50)]
    oracle = PLDAccountant(value_discretization_interval=1e-3)
    for one in events:
        oracle.compose(
            SelfComposedDpEvent(
                PoissonSampledDpEvent(one.sample_rate, GaussianDpEvent(one.noise_multiplier)), one.steps
            )
        )
    assert epsilon(events, 1e-5) == pytest.approx(oracle.get_epsilon(1e-5), abs=1e-4)
