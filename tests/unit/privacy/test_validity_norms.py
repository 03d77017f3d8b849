"""The bound that a job may claim: honest updates under DP-SGD keep it, and plans with it are admitted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.plan import DpTerms, TrainingTerms, ValidityClaim, VectorTerms
from privacy.secagg.validity.norms import least_coordinate_bound, suggested_norm_bound
from privacy.secagg.validity.terms import terms_of
from tests.federation import Federation

FEDERATION = Federation()


def dp(noise: float, normaliser: float, clip: float = 1.0) -> DpTerms:
    return DpTerms(
        unit="patient",
        sample_rate=0.1,
        noise_multiplier=noise,
        clip_l2=clip,
        normaliser=normaliser,
        delta=1e-5,
    )


def training(steps: int, rate: float = 0.5) -> TrainingTerms:
    return TrainingTerms(
        algorithm="dp_fedavg", local_steps=steps, learning_rate=rate, server_learning_rate=1.0
    )


@pytest.mark.parametrize(("noise", "steps", "parameters"), [(4.0, 2, 3), (1.0, 20, 1000), (0.5, 5, 20_000)])
def test_the_longest_honest_update_of_many_stays_within_it(noise: float, steps: int, parameters: int) -> None:
    """Every gradient clipped and all in one direction: the worst that data can do."""
    terms, ran = dp(noise, normaliser=30.0), training(steps)
    bound = suggested_norm_bound(terms, ran, parameters)
    rng = np.random.default_rng(1)
    longest = 0.0
    for _ in range(200):
        records = rng.binomial(300, terms.sample_rate, size=steps).sum()
        update = rng.normal(0, noise * math.sqrt(steps), size=parameters)
        update[0] += math.copysign(records, update[0])
        longest = max(longest, float(np.linalg.norm(update)) * ran.learning_rate / terms.normaliser)
    assert 0.3 * bound < longest < bound


@given(
    noise=st.floats(0.3, 10),
    steps=st.integers(1, 50),
    parameters=st.integers(1, 10**7),
    rate=st.floats(0.01, 2),
)
def test_noise_is_most_of_it_and_it_grows_with_every_term(
    noise: float, steps: int, parameters: int, rate: float
) -> None:
    terms, ran = dp(noise, normaliser=50.0), training(steps, rate)
    bound = suggested_norm_bound(terms, ran, parameters)
    assert bound > rate / 50.0 * noise * math.sqrt(steps * parameters)
    assert suggested_norm_bound(terms, ran, parameters + 1) > bound
    assert suggested_norm_bound(dp(noise * 1.1, 50.0), ran, parameters) > bound


@given(norm=st.floats(0.1, 30), bits=st.integers(8, 19), parameters=st.integers(2, 10**6))
def test_the_least_coordinate_bound_is_admitted_and_less_is_not(
    norm: float, bits: int, parameters: int
) -> None:
    vector = VectorTerms(coordinate_bound=1.0, scale_bits=bits)
    least = least_coordinate_bound(norm, vector, parameters)
    spec = FEDERATION.job_spec(
        vector=vector.model_copy(update={"coordinate_bound": least}), validity=ValidityClaim(norm_bound=norm)
    )
    plan = FEDERATION.plan(spec, validity=spec.validity, parameters=parameters)
    assert terms_of(plan).dimension == parameters
    less = plan.model_copy(
        update={"vector": vector.model_copy(update={"coordinate_bound": np.nextafter(least, 0).item()})}
    )
    with pytest.raises(Exception, match="coordinate_bound"):
        terms_of(less)
