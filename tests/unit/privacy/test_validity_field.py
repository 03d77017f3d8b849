"""Field arithmetic against Python integers, at every edge where a carry or a borrow may be lost."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import MalformedMessage
from privacy.secagg.keystream import CHUNK_ELEMENTS
from privacy.secagg.validity import field as f
from privacy.secagg.validity.field import MODULUS as P
from privacy.secagg.validity.sharing import field_stream, reject_and_replace
from privacy.secagg.validity.transform import evaluate_on_domain, interpolate_on_domain, lagrange_weights

EDGES = [0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63]
EDGES += [P // 2, P // 2 + 1, P - 2**32, P - 2, P - 1]
elements = st.one_of(st.sampled_from(EDGES), st.integers(0, P - 1))


def array(*values: int) -> f.Field:
    return np.array(values, dtype=np.uint64)


def test_every_pair_of_edges_adds_subtracts_and_multiplies_as_integers_do() -> None:
    a = np.repeat(array(*EDGES), len(EDGES))
    b = np.tile(array(*EDGES), len(EDGES))
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert f.add(a, b).tolist() == [(x + y) % P for x, y in pairs]
    assert f.subtract(a, b).tolist() == [(x - y) % P for x, y in pairs]
    assert f.multiply(a, b).tolist() == [x * y % P for x, y in pairs]
    assert f.dot(a, b) == sum(x * y for x, y in pairs) % P


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(elements, elements), min_size=1, max_size=20))
def test_any_pair_does(pairs: list[tuple[int, int]]) -> None:
    a, b = (array(*column) for column in zip(*pairs, strict=True))
    assert f.add(a, b).tolist() == [(x + y) % P for x, y in pairs]
    assert f.subtract(a, b).tolist() == [(x - y) % P for x, y in pairs]
    assert f.multiply(a, b).tolist() == [x * y % P for x, y in pairs]
    assert f.dot(a, b) == sum(x * y for x, y in pairs) % P
    assert f.total(np.stack([a, b]), axis=0).tolist() == [(x + y) % P for x, y in pairs]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 3), st.randoms())
def test_matrix_products_by_limbs_are_exact(rows: int, columns: int, width: int, random: Random) -> None:
    draw = random.choice
    a = np.array([[draw(EDGES) for _ in range(columns)] for _ in range(rows)], dtype=np.uint64)
    b = np.array([[draw(EDGES) for _ in range(width)] for _ in range(columns)], dtype=np.uint64)
    exact = [
        [sum(int(a[i, k]) * int(b[k, j]) for k in range(columns)) % P for j in range(width)]
        for i in range(rows)
    ]
    assert f.rows_times(a, b).tolist() == exact


def test_matrix_products_stay_exact_when_every_limb_is_full() -> None:
    a = np.full((2, 512), P - 2**32 - 1, dtype=np.uint64)  # limbs ffff ffff fffe ffff, or nearly
    assert f.rows_times(a, a[:1].T)[0, 0] == 512 * (P - 2**32 - 1) ** 2 % P


@given(elements)
def test_signed_integers_come_back(x: int) -> None:
    signed = x - P if x > P // 2 else x
    assert int(f.centred(array(x))[0]) == signed
    assert int(f.from_signed(np.array([signed], dtype=np.int64))[0]) == x


def test_inverses_powers_and_roots() -> None:
    values = array(*[x for x in EDGES if x])
    assert f.multiply(values, f.inverse(values)).tolist() == [1] * len(values)
    assert f.powers(7, 11).tolist() == [pow(7, k, P) for k in range(11)]
    for bits in (0, 1, 11, 32):
        root = f.root_of_unity(1 << bits)
        assert pow(root, 1 << bits, P) == 1
        assert bits == 0 or pow(root, 1 << (bits - 1), P) == P - 1
    with pytest.raises(ValueError, match="power of two"):
        f.root_of_unity(3)


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_transform_interpolation_and_lagrange_agree_with_horner(size: int) -> None:
    coefficients = np.random.default_rng(1).integers(0, P, size, dtype=np.uint64)
    root = f.root_of_unity(size)

    def horner(point: int) -> int:
        value = 0
        for c in coefficients[::-1]:
            value = (value * point + int(c)) % P
        return value

    values = evaluate_on_domain(coefficients)
    assert values.tolist() == [horner(pow(root, k, P)) for k in range(size)]
    assert interpolate_on_domain(values).tolist() == coefficients.tolist()
    assert f.dot(lagrange_weights(size, 12345), values) == horner(12345)


@pytest.mark.parametrize("bad", [P, P + 1, 2**64 - 1])
def test_an_element_that_is_not_below_p_is_refused(bad: int) -> None:
    """Two spellings of one element would be two digests of one share."""
    with pytest.raises(MalformedMessage, match="each below"):
        f.from_bytes(bad.to_bytes(8, "little"), 1)
    assert f.from_bytes((P - 1).to_bytes(8, "little"), 1)[0] == P - 1


@pytest.mark.parametrize("length", [0, 7, 9, 16])
def test_a_length_that_does_not_fit_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessage, match="expected 8 bytes"):
        f.from_bytes(bytes(length), 1)


def test_the_stream_replaces_what_is_not_below_p_and_keeps_the_rest() -> None:
    attempts = {0: array(5, P, 2**64 - 1, 6), 1: array(1, 2, P, 3), 2: array(7, 8, 9, 10)}
    assert reject_and_replace(attempts.__getitem__).tolist() == [5, 2, 9, 6]


def test_the_stream_is_seekable() -> None:
    key = bytes(range(32))
    whole = field_stream(key, 0, CHUNK_ELEMENTS)
    half = CHUNK_ELEMENTS // 2
    assert np.array_equal(whole[half:], field_stream(key, half, half))
