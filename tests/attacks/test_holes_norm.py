"""Where silos prove their updates' norm, whether one is too long is a bit that ε does not count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.dp.integer_noise import NORM_TAIL_BITS, IntegerMechanism, integer_mechanism, shortened
from privacy.plan import VectorTerms
from privacy.secagg.validity.norms import suggested_norm_bound
from privacy.secagg.validity.terms import encoded_bound_of
from silo_agent.algorithms import dp_fedsgd as algorithm
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.task import Task
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import initial_vector
from tests.unit.silo_agent.test_fedsgd_algorithm import MODELS, STEP, VECTOR, records, terms

VECTORS = st.lists(st.floats(-1e7, 1e7), min_size=3, max_size=3)
MODEL = MODELS["logistic"]


def _steps(norm_bound: float | None) -> NDArray[np.float64]:
    start = initial_vector(MODEL, 3)
    task = Task(
        MODEL,
        STEP,
        terms(model="distributed", noise_shares=3),
        VECTOR,
        start,
        ADAPTERS[MODEL.adapter],
        records(9),
        norm_bound=norm_bound,
    )
    return dp_fedsgd(task).steps


@given(a=VECTORS, b=VECTORS, bound=st.floats(1e-3, 300), deviation=st.floats(4, 1e4))
def test_shortening_brings_no_neighbours_further_apart(
    a: list[float], b: list[float], bound: float, deviation: float
) -> None:
    mechanism = IntegerMechanism(steps_per_unit=1.0, clip=1.0, deviation=deviation, margin=0.0)
    vector = VectorTerms(coordinate_bound=bound, scale_bits=12)
    one, two = (shortened(np.array(x), mechanism, vector, bound) for x in (a, b))
    apart = np.linalg.norm(np.array(a) - np.array(b))
    assert np.linalg.norm(one - two) <= apart * (1 + 1e-12) + 1e-9


def test_a_silo_far_larger_than_the_normaliser_says_keeps_the_bound_that_it_proves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dp = terms(model="distributed", noise_shares=3)
    mechanism = integer_mechanism(dp, STEP, VECTOR, MODEL.parameters)
    claimed = suggested_norm_bound(dp, STEP, MODEL.parameters)
    longest = mechanism.deviation * (
        math.sqrt(MODEL.parameters) + math.sqrt(2 * NORM_TAIL_BITS * math.log(2))
    )
    direction = np.ones(MODEL.parameters) / math.sqrt(MODEL.parameters)
    far = 1e3 * claimed * 2.0**VECTOR.scale_bits / mechanism.steps_per_unit
    monkeypatch.setattr(algorithm, "private_sum", lambda *_: -far * direction)
    monkeypatch.setattr(algorithm, "gaussian", lambda count, deviation: longest * direction)
    bound = encoded_bound_of(claimed, VECTOR.scale_bits, MODEL.parameters)
    assert np.linalg.norm(_steps(claimed)) <= bound
    assert np.linalg.norm(_steps(None)) > bound, "which the servers would have seen refused"


def test_an_ordinary_silo_sends_what_it_would_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "gaussian", lambda count, deviation: np.zeros(count))
    claimed = suggested_norm_bound(terms(model="distributed", noise_shares=3), STEP, MODEL.parameters)
    np.testing.assert_array_equal(_steps(claimed), _steps(None))
