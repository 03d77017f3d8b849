"""Two programs, one ε: the verifier's bounds hold the platform's value, within the distance stated."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sealsum_verify.accountant import epsilon_lower, epsilon_upper

from privacy.dp.accountant import epsilon, epsilon_rdp
from privacy.dp.events import DpEvent

_RDP_DISTANCE = 0.02
"""Relative or absolute; docs/auditing.md says so."""


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([0.001, 0.004, 0.02, 0.1, 0.35, 0.8, 1.0]),
    st.floats(0.5, 20).map(lambda noise: round(noise, 2)),
    st.integers(1, 2000),
    st.sampled_from([1e-9, 1e-7, 1e-5, 1e-3]),
)
@example(0.001, 7.0, 1, 1e-9)
def test_the_platforms_epsilon_lies_within_the_verifiers_bounds(
    rate: float, noise: float, steps: int, delta: float
) -> None:
    events = [DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)]
    claimed = min(epsilon(events, delta), epsilon_rdp(events, delta))
    upper = epsilon_upper(rate, noise, steps, delta)
    assert epsilon_lower(rate, noise, steps, delta) <= claimed <= upper + 1e-4
    theirs = epsilon_rdp(events, delta)
    assert math.isclose(theirs, upper, rel_tol=_RDP_DISTANCE, abs_tol=_RDP_DISTANCE)
