"""ε against published reference values, against RDP from above, and against composition rules."""

from __future__ import annotations

import math

import pytest
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.dp.accountant import epsilon, epsilon_rdp
from privacy.dp.events import DpEvent, merged


def event(rate: float, noise: float, steps: int) -> DpEvent:
    return DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "reference"),
    [
        (0.01, 0.6, 1000, 7.43),
        (0.01, 1.0, 20_000, 9.27),
        (0.1, 1.0, 100, 7.05),
        (0.1, 4.0, 10_000, 13.50),
        (1.0, 10.0, 100, 4.377),
    ],
)
def test_epsilon_matches_reference_values(rate: float, noise: float, steps: int, reference: float) -> None:
    assert epsilon([event(rate, noise, steps)], 1e-5) == pytest.approx(reference, abs=0.01)


def test_a_full_batch_gaussian_matches_the_exact_formula() -> None:
    # Balle and Wang 2018, Theorem 8: δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ = √T/σ.
    steps, noise = 40, 8.0
    mu = math.sqrt(steps) / noise
    eps = epsilon([event(1.0, noise, steps)], 1e-5)

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    delta = phi(mu / 2 - eps / mu) - math.exp(eps) * phi(-mu / 2 - eps / mu)
    assert delta == pytest.approx(1e-5, rel=0.05)
    assert delta <= 1e-5


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0.05, 0.2, 0.5, 1.0]),
    st.sampled_from([0.8, 1.5, 4.0]),
    st.integers(1, 60),
    st.integers(1, 60),
)
def test_more_steps_never_cost_less_and_pld_never_exceeds_rdp(
    rate: float, noise: float, few: int, more: int
) -> None:
    one, both = [event(rate, noise, few)], [event(rate, noise, few), event(rate, noise, more)]
    assert epsilon(one, 1e-5) <= epsilon(both, 1e-5)
    assert epsilon(both, 1e-5) <= epsilon_rdp(both, 1e-5) * (1 + 1e-9)


def test_how_events_are_written_down_does_not_change_their_cost() -> None:
    apart = [event(0.2, 2.0, 5), event(0.1, 1.0, 3), event(0.2, 2.0, 5)]
    assert merged(apart) == (event(0.1, 1.0, 3), event(0.2, 2.0, 10))
    assert epsilon(apart, 1e-5) == epsilon(list(reversed(apart)), 1e-5)


def test_nothing_costs_nothing() -> None:
    assert epsilon([], 1e-5) == 0.0


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
