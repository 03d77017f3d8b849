"""Noise found for a target never overshoots it, and rounding to a grid never makes a schedule cheaper."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.dp.accountant import epsilon
from privacy.dp.calibration import LEAST_NOISE, calibrated_noise
from privacy.dp.events import Adjacency, DpEvent
from privacy.dp.grid import noise_at, on_grid, tick_at_or_above
from privacy.errors import ConfigurationError


@settings(max_examples=4, deadline=None)
@given(
    st.floats(0.1, 20),
    st.sampled_from([1e-7, 1e-5]),
    st.sampled_from([0.01, 0.1, 0.5, 1.0]),
    st.integers(20, 3000),
    st.sampled_from(["add_remove", "replace_one"]),
)
def test_calibrated_noise_never_overshoots_and_hardly_undershoots(
    target: float, delta: float, rate: float, steps: int, adjacency: Adjacency
) -> None:
    found = calibrated_noise(target, delta, rate, steps, adjacency)
    event = DpEvent(sample_rate=rate, noise_multiplier=found.noise_multiplier, steps=steps)
    assert epsilon([event], delta, adjacency) == found.price.epsilon
    assert target * (1 - 1e-3) <= found.price.epsilon <= target
    assert on_grid(event, 6) == event


def test_more_noise_than_any_job_could_use_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"epsilon: expected a target .* ask for a larger ε"):
        calibrated_noise(1e-9, 1e-9, 1.0, 1000, "add_remove")
    for target in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match=r"epsilon: expected a target above 0"):
            calibrated_noise(target, 1e-5, 0.1, 10, "add_remove")


def test_a_target_that_the_least_noise_meets_gets_the_least_noise() -> None:
    found = calibrated_noise(1e4, 1e-5, 1.0, 1, "add_remove")
    assert found.noise_multiplier == LEAST_NOISE
    assert found.price.epsilon <= 1e4


@given(st.floats(1e-6, 1), st.floats(0.01, 1e5), st.integers(1, 8))
def test_the_grid_never_asks_for_less_sampling_or_more_noise(rate: float, noise: float, digits: int) -> None:
    event = DpEvent(sample_rate=rate, noise_multiplier=noise, steps=3)
    rounded = on_grid(event, digits)
    assert rate <= rounded.sample_rate <= min(1.0, rate * (1 + 10.0 ** (1 - digits)))
    assert noise * (1 - 10.0 ** (1 - digits)) <= rounded.noise_multiplier <= noise
    assert on_grid(rounded, digits) == rounded
    assert rounded.steps == 3


def test_a_number_as_people_write_it_is_on_its_grid() -> None:
    event = DpEvent(sample_rate=0.1, noise_multiplier=1.1, steps=1)
    assert on_grid(event, 2) == event
    assert on_grid(event, 1).noise_multiplier == 1.0


@settings(max_examples=5, deadline=None)
@given(st.floats(0.01, 0.9), st.floats(0.5, 5))
def test_what_is_on_the_grid_costs_no_less(rate: float, noise: float) -> None:
    event = DpEvent(sample_rate=rate, noise_multiplier=noise, steps=20)
    assert epsilon([event], 1e-5) <= epsilon([on_grid(event, 2)], 1e-5) * (1 + 1e-9)


@given(st.integers(-6_000_000, 6_000_000))
def test_ticks_count_the_grid_upwards_without_a_gap(tick: int) -> None:
    assert tick_at_or_above(noise_at(tick)) == tick
    assert noise_at(tick) < noise_at(tick + 1) <= noise_at(tick) * (1 + 1.01e-5)
    assert tick_at_or_above((noise_at(tick) + noise_at(tick + 1)) / 2) == tick + 1
