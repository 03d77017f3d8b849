"""The verifier's accountant against the platform's and against closed forms: two authors, one ε."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sealsum_verify.accountant import epsilon_lower, epsilon_upper, renyi

from privacy.dp.accountant import epsilon, epsilon_rdp
from privacy.dp.events import DpEvent

RATES = (0.05, 0.3, 1.0)
NOISES = (0.7, 2.0, 8.0)
STEPS = (1, 30, 1000)


def claimed(rate: float, noise: float, steps: int, delta: float) -> float:
    return epsilon([DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)], delta)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rate", RATES)
def test_a_true_claim_always_lies_between_the_two_bounds(rate: float, noise: float, delta: float) -> None:
    for steps in STEPS:
        true = claimed(rate, noise, steps, delta)
        assert (
            epsilon_lower(rate, noise, steps, delta)
            <= true
            <= epsilon_upper(rate, noise, steps, delta) + 1e-4
        )


@pytest.mark.parametrize(("rate", "steps"), [(0.05, 5), (0.1, 10), (0.3, 30), (1.0, 5)])
def test_at_ordinary_noise_the_bounds_are_near(rate: float, steps: int) -> None:
    """Measured over σ ≥ 2, δ = 1e-5 and ε in [0.1, 10]: lower bound within 10 %, upper within 40 %."""
    true = claimed(rate, 2.0, steps, 1e-5)
    assert 0.1 <= true <= 10
    assert epsilon_lower(rate, 2.0, steps, 1e-5) >= 0.9 * true
    assert epsilon_upper(rate, 2.0, steps, 1e-5) <= 1.4 * true


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("noise", NOISES)
def test_renyi_dp_agrees_with_an_independent_program(rate: float, noise: float) -> None:
    for steps in STEPS:
        event = DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)
        theirs = epsilon_rdp([event], 1e-5)
        assert math.isclose(epsilon_upper(rate, noise, steps, 1e-5), theirs, rel_tol=0.02, abs_tol=0.02)


@pytest.mark.parametrize("noise", NOISES)
def test_one_gaussian_has_exactly_the_epsilon_of_its_closed_form(noise: float) -> None:
    """δ(ε) of Balle and Wang 2018, theorem 8, evaluated at the lower bound, which is exact for one step."""
    low = epsilon_lower(1.0, noise, 1, 1e-5)
    upper_tail, lower_tail = 1 / (2 * noise) - low * noise, -1 / (2 * noise) - low * noise
    delta = (
        math.erfc(-upper_tail / math.sqrt(2)) - math.exp(low) * math.erfc(-lower_tail / math.sqrt(2))
    ) / 2
    assert delta == pytest.approx(1e-5, rel=0.02)


def test_renyi_divergence_of_order_two_is_its_closed_form() -> None:
    """log(1 + q²(e^{1/σ²} − 1)) (Mironov, Talwar, Zhang 2019, for α = 2)."""
    expected = math.log(1 + 0.3**2 * math.expm1(1 / 1.7**2))
    assert renyi(0.3, 1.7, 2) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=25)
@given(st.floats(0.001, 1), st.floats(0.3, 50), st.integers(1, 500), st.floats(1e-10, 0.1))
def test_bounds_are_ordered_and_grow_with_steps(rate: float, noise: float, steps: int, delta: float) -> None:
    low, high = epsilon_lower(rate, noise, steps, delta), epsilon_upper(rate, noise, steps, delta)
    assert 0 <= low <= high < math.inf
    assert high <= epsilon_upper(rate, noise, steps + 1, delta)


@pytest.mark.slow
@given(st.floats(0.01, 1e6), st.integers(1, 10**6), st.floats(1e-30, 0.999), st.floats(1e-9, 1))
@settings(max_examples=40)
def test_extreme_terms_give_a_number(noise: float, steps: int, delta: float, rate: float) -> None:
    assert math.isfinite(epsilon_lower(rate, noise, min(steps, 20_000), delta))
    assert epsilon_upper(rate, noise, steps, delta) >= 0
