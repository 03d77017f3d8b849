"""The job's noise reaches the target ε from below, and its terms fit what they describe."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent, round_event
from privacy.errors import ConfigurationError
from privacy.ids import Digest
from privacy.secagg.encoding import assert_fits
from sealsum.demo.calibration import GRID, least_noise
from sealsum.demo.job import DELTA, demo_terms, first_model, learning_rate
from sealsum.demo.patients import HOSPITALS

CHARTER = Digest("0" * 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "steps"), [(3.0, 40), (1.0, 40), (8.0, 40), (0.1, 40), (3.0, 2), (2.5, 200)]
)
def test_the_noise_never_overshoots_and_a_step_less_would(target: float, steps: int) -> None:
    noise = least_noise(target, DELTA, 0.5, steps)
    spent = epsilon([DpEvent(sample_rate=0.5, noise_multiplier=noise, steps=steps)], DELTA)
    less = DpEvent(sample_rate=0.5, noise_multiplier=round(noise - GRID, 2), steps=steps)
    assert spent <= target < epsilon([less], DELTA)
    assert math.isclose(noise / GRID, round(noise / GRID))


def test_a_target_no_noise_can_reach_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected a target that 40 steps can meet"):
        least_noise(1e-6, DELTA, 0.5, 40)


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_whole_job_costs_at_most_what_was_asked(rounds: int) -> None:
    terms = demo_terms(rounds, 3.0, seed=0)
    assert epsilon([round_event(terms.dp, terms.training)] * rounds, DELTA) <= 3.0


def test_the_job_has_about_a_thousand_parameters_and_fits_the_ring() -> None:
    job = demo_terms(20, 3.0, seed=0).job("heart-demo", CHARTER)
    assert job.model.parameters == 1016
    assert_fits(job.vector, len(HOSPITALS))


def test_the_first_model_is_public_and_repeatable() -> None:
    model = demo_terms(20, 3.0, seed=0).model
    assert np.array_equal(first_model(model, 7), first_model(model, 7))
    assert not np.array_equal(first_model(model, 7), first_model(model, 8))


def test_fewer_steps_are_longer_but_never_beyond_the_limit() -> None:
    assert learning_rate(3.0, 40) == 2.06
    assert learning_rate(3.0, 20) == 4.13
    assert learning_rate(3.0, 2) == 8.0
