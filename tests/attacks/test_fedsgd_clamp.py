"""Whether an update fits its bound is a bit that ε does not count: under shared noise it tells nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.dp.integer_noise import LONGEST_DRAW, IntegerMechanism, clamped
from privacy.plan import VectorTerms
from privacy.secagg.encoding import encode_steps
from silo_agent.algorithms import dp_fedsgd as algorithm
from tests.unit.silo_agent.test_fedsgd_algorithm import (
    MODELS,
    VECTOR,
    mechanism_of,
    records,
    steps_of,
    terms,
)

BITS = 12
VECTORS = st.lists(st.integers(-(1 << 20), 1 << 20), min_size=3, max_size=3)


def _mechanism(deviation: float) -> IntegerMechanism:
    return IntegerMechanism(steps_per_unit=1.0, clip=1.0, deviation=deviation, margin=0.0)


@given(a=VECTORS, b=VECTORS, bound=st.floats(1e-3, 300), deviation=st.floats(4, 1e4))
def test_clamping_brings_no_neighbours_further_apart_and_keeps_integers(
    a: list[int], b: list[int], bound: float, deviation: float
) -> None:
    vector = VectorTerms(coordinate_bound=bound, scale_bits=BITS)
    one, two = (clamped(np.array(x, dtype=np.float64), _mechanism(deviation), vector) for x in (a, b))
    assert np.linalg.norm(one - two) <= np.linalg.norm(np.array(a) - np.array(b))
    assert np.array_equal(one, np.rint(one))


@given(
    signal=VECTORS, draws=st.lists(st.floats(-13.1, 13.1), min_size=3, max_size=3), bound=st.floats(1, 300)
)
def test_whatever_the_data_and_the_draw_an_update_fits_where_there_is_room_for_a_signal(
    signal: list[int], draws: list[float], bound: float
) -> None:
    vector = VectorTerms(coordinate_bound=bound, scale_bits=BITS)
    mechanism = _mechanism(bound * 2**BITS / (LONGEST_DRAW + 2))
    noise = np.rint(mechanism.deviation * np.array(draws))
    encode_steps(clamped(np.array(signal, dtype=np.float64), mechanism, vector) + noise, vector)


@given(a=VECTORS, b=VECTORS, draws=st.lists(st.floats(-13.1, 13.1), min_size=3, max_size=3))
def test_without_room_the_noise_alone_decides(a: list[int], b: list[int], draws: list[float]) -> None:
    vector = VectorTerms(coordinate_bound=1.0, scale_bits=BITS)
    mechanism = _mechanism(2**BITS / 3)
    sent = [
        clamped(np.array(x, dtype=np.float64), mechanism, vector)
        + np.rint(mechanism.deviation * np.array(draws))
        for x in (a, b)
    ]
    assert np.array_equal(*sent)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_silo_far_larger_than_the_normaliser_says_is_not_told_by_its_refusal(
    monkeypatch: pytest.MonkeyPatch, sign: float
) -> None:
    """A researcher picks a bound at which some silos' sums would not fit: all of them send all the same."""
    model = MODELS["logistic"]
    mechanism = mechanism_of(model, terms())
    beyond = 10 * VECTOR.coordinate_bound * 2.0**VECTOR.scale_bits / mechanism.steps_per_unit

    def huge(*_: object) -> NDArray[np.float64]:
        return np.full(model.parameters, sign * beyond)

    def longest(count: int, deviation: float) -> NDArray[np.float64]:
        return np.full(count, -sign * 13.1 * deviation)

    monkeypatch.setattr(algorithm, "private_sum", huge)
    monkeypatch.setattr(algorithm, "gaussian", longest)
    encode_steps(steps_of(model, records(9), terms()), VECTOR)
