"""The ring holds every honest sum, and refuses to repair a dishonest number."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.plan import VectorTerms
from privacy.secagg.encoding import (
    UpdateOutOfRange,
    assert_fits,
    decode,
    encode,
    encode_fresh,
    encode_weight,
)
from privacy.secagg.keystream import BLOCK_ELEMENTS, Dither, DitherStream

TERMS = VectorTerms(coordinate_bound=4.0, scale_bits=20)


def dithered(
    values: NDArray[np.float32], weight: float = 1.0, terms: VectorTerms = TERMS
) -> NDArray[np.uint32]:
    return encode(values, weight, terms, Dither().at(0, len(values)))


@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=64), st.floats(0.01, 1))
def test_a_value_comes_back_within_one_step_of_the_scale(values: list[float], weight: float) -> None:
    vector = np.array(values, dtype=np.float32)
    error = decode(dithered(vector, weight), TERMS) - vector.astype(np.float64) * weight
    assert np.all(np.abs(error) <= 2.0**-20)


@given(
    st.lists(st.tuples(st.floats(-4, 4, width=32), st.integers(0, 2**32 - 1)), min_size=1, max_size=64),
    st.floats(0.01, 1),
)
def test_encoding_is_rounding_after_a_dither_of_half_a_step_either_way(
    cases: list[tuple[float, int]], weight: float
) -> None:
    values, words = (np.array(column) for column in zip(*cases, strict=True))
    encoded = encode(values.astype(np.float32), weight, TERMS, words.astype(np.uint32))
    for value, word, got in zip(values, words, encoded, strict=True):
        dither = Fraction(int(word) - (int(word) >> 31 << 32), 2**32)  # the word as a signed fraction
        exact = Fraction(float(np.float32(value)) * weight) * 2**20 + dither
        nearest = {floor(exact + Fraction(k, 2**32)) for k in (2**31 - 2**8, 2**31, 2**31 + 2**8)}
        assert int(got) in {integer % 2**32 for integer in nearest}
        assert len(nearest) == 1 or abs(exact - floor(exact) - Fraction(1, 2)) < Fraction(1, 2**23)


@pytest.mark.parametrize("place", [0, 2**15 - 1, 2**15, 2**15 + 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 4.001, -4.001])
def test_a_bad_coordinate_is_found_wherever_it_is(bad: float, place: int) -> None:
    values = np.zeros(2**15 + 5, dtype=np.float32)
    values[place] = bad
    with pytest.raises(UpdateOutOfRange):
        dithered(values)


def test_the_bound_holds_for_the_weighted_value() -> None:
    assert decode(dithered(np.array([-8.0, 8.0], dtype=np.float32), 0.5), TERMS).tolist() == [-4.0, 4.0]
    with pytest.raises(UpdateOutOfRange, match="beyond coordinate_bound 4"):
        dithered(np.array([8.01], dtype=np.float32), 0.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(UpdateOutOfRange, match="expected finite values"):
        dithered(np.array([0.0, bad], dtype=np.float32))


@pytest.mark.parametrize("length", [2**15 - 1, 2**15, 2**15 + 1, 2**17 + 3])
def test_a_long_vector_is_encoded_as_its_pieces_are_and_refused_for_its_last_coordinate(length: int) -> None:
    values = np.linspace(-4, 4, length, dtype=np.float32)
    dither = Dither().at(0, length)
    pieces = [
        encode(values[at : at + 1000], 0.7, TERMS, dither[at : at + 1000]) for at in range(0, length, 1000)
    ]
    np.testing.assert_array_equal(encode(values, 0.7, TERMS, dither), np.concatenate(pieces))
    values[-1] = np.nan
    with pytest.raises(UpdateOutOfRange, match="expected finite values"):
        encode(values, 0.7, TERMS, dither)


def test_a_coordinate_beyond_the_bound_is_refused_not_clipped() -> None:
    with pytest.raises(UpdateOutOfRange, match="beyond coordinate_bound 4"):
        dithered(np.array([4.001], dtype=np.float32))


@pytest.mark.parametrize("weight", [0.0, -0.5, 1.5, float("nan")])
def test_a_weight_outside_zero_to_one_is_refused(weight: float) -> None:
    with pytest.raises(UpdateOutOfRange, match="weight in"):
        encode_weight(weight, TERMS)
    with pytest.raises(UpdateOutOfRange, match="weight in"):
        dithered(np.zeros(1, dtype=np.float32), weight)


def test_the_most_silos_that_fit_do_not_overflow_at_the_bound_and_one_more_is_refused() -> None:
    terms = VectorTerms(coordinate_bound=4.0, scale_bits=24)
    most = 31
    assert_fits(terms, most)
    top = np.full(8, 4.0, dtype=np.float32)
    for sign in (1.0, -1.0):
        total = np.zeros(8, dtype=np.uint32)
        for _ in range(most):
            total += encode((sign * top).astype(np.float32), 1.0, terms, Dither().at(0, 8))
        assert np.all(np.abs(decode(total, terms) - sign * 4.0 * most) < 1e-4)
    with pytest.raises(Unprocessable, match="reaches 2\\^31"):
        assert_fits(terms, most + 1)


def test_rounding_has_no_bias() -> None:
    # Mean error of 2^20 dithered copies of one value: sd of the mean is about 0.5/2^10 steps ≈ 5e-4.
    value = np.full(1 << 20, 0.300_000_07, dtype=np.float32)
    error_in_steps = (decode(dithered(value), TERMS) - value.astype(np.float64)).mean() * 2.0**20
    assert abs(error_in_steps) < 0.01


def test_dither_does_not_vanish_where_float32_would_lose_it() -> None:
    terms = VectorTerms(coordinate_bound=4.0, scale_bits=26)
    value = np.full(1 << 16, 3.141_592_74, dtype=np.float32)
    error_in_steps = (decode(dithered(value, 1 / 7, terms), terms) - value.astype(np.float64) / 7) * 2.0**26
    assert len(np.unique(np.round(error_in_steps, 3))) == 2
    assert abs(error_in_steps.mean()) < 0.02


def test_the_weight_of_a_uniform_job_is_exact() -> None:
    assert decode(encode_weight(1.0, TERMS), TERMS)[0] == 1.0


@pytest.mark.parametrize("length", [1, BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, 3 * BLOCK_ELEMENTS + 5])
def test_fresh_dither_encodes_as_its_own_words_would(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda count: b"\x07" * count)
    one, other = DitherStream(), DitherStream()
    words = np.concatenate([block.copy() for block in other.blocks(2 * length)], dtype=np.uint32)
    values = np.linspace(-4, 4, length, dtype=np.float32)
    for turn in (words[:length], words[length:]):
        np.testing.assert_array_equal(encode_fresh(values, 0.7, TERMS, one), encode(values, 0.7, TERMS, turn))
    assert len(encode_fresh(values[:0], 0.7, TERMS, one)) == 0


def test_fresh_dither_never_comes_twice() -> None:
    stream = DitherStream()
    blocks = [block.copy() for _ in range(3) for block in stream.blocks(BLOCK_ELEMENTS + 9)]
    blocks += [block.copy() for block in DitherStream().blocks(BLOCK_ELEMENTS)]
    words = np.concatenate(blocks)
    repeats = len(words) - len(np.unique(words))
    assert repeats < 20  # of 131,099 uniform words about two coincide


def test_fresh_dither_refuses_what_encoding_refuses() -> None:
    for bad in (np.nan, 4.001):
        with pytest.raises(UpdateOutOfRange):
            encode_fresh(np.array([bad], dtype=np.float32), 1.0, TERMS, DitherStream())
    with pytest.raises(UpdateOutOfRange, match="weight in"):
        encode_fresh(np.zeros(1, dtype=np.float32), 0.0, TERMS, DitherStream())
