"""The job's noise reaches the target ε from below, and its terms fit what they describe."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privacy.dp.accountant import epsilon
from privacy.dp.events import round_event
from privacy.dp.integer_noise import (
    LEAST_DEVIATION,
    MOST_DEVIATION,
    MOST_MARGIN,
    integer_mechanism,
    least_coordinate_bound,
)
from privacy.errors import ConfigurationError
from privacy.ids import Digest
from privacy.plan import AlgorithmName, SchemeName
from privacy.secagg.catalogue import SCHEMES
from privacy.secagg.encoding import assert_fits
from sealsum.demo.job import DELTA, MIN_SILOS, demo_terms, first_model, learning_rate
from sealsum.demo.patients import HOSPITALS

CHARTER = Digest("0" * 64)


def test_a_target_whose_noise_no_grid_carries_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="additive with 4 silos has no grid"):
        demo_terms(40, 1e-6, seed=0)


@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("algorithm", ["dp_fedsgd", "dp_fedavg"])
def test_a_whole_job_costs_what_was_asked_and_never_more(rounds: int, algorithm: AlgorithmName) -> None:
    terms = demo_terms(rounds, 3.0, seed=0, algorithm=algorithm)
    assert 2.99 < epsilon([round_event(terms.dp, terms.training)] * rounds, DELTA) <= 3.0


def test_shared_noise_changes_what_a_hospital_adds_and_not_what_the_sum_costs() -> None:
    full, shared = demo_terms(20, 3.0, seed=0), demo_terms(20, 3.0, seed=0, noise="distributed")
    assert round_event(shared.dp, shared.training) == round_event(full.dp, full.training)
    assert shared.dp.noise_shares == MIN_SILOS - 1
    assert shared.dp.own_noise_multiplier == full.dp.noise_multiplier / math.sqrt(2)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("target", [0.3, 1.0, 3.0, 8.0])
def test_rounding_takes_little_of_the_clip_norm_under_every_scheme(scheme: SchemeName, target: float) -> None:
    terms = demo_terms(20, target, seed=0, scheme=scheme)
    mechanism = integer_mechanism(terms.dp, terms.training, terms.vector, terms.model.parameters)
    assert mechanism.margin <= MOST_MARGIN
    assert LEAST_DEVIATION <= mechanism.deviation <= MOST_DEVIATION
    assert terms.vector.coordinate_bound >= least_coordinate_bound(terms.dp, terms.training, terms.vector)


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
