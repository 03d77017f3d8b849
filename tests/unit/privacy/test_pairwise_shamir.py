"""Any t shares are the secret, fewer are nothing, and no index is zero or used twice."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.secagg.pairwise import shamir
from privacy.secagg.pairwise.faults import BadShare, BelowThreshold
from privacy.secagg.pairwise.shamir import PRIME, deal, evaluate, rebuild, weights_at_zero


def test_the_modulus_is_the_least_prime_above_every_secret() -> None:
    # Miller–Rabin with the first 40 primes as bases: no composite of 257 bits is known to pass, and a
    # random one passes with probability below 2^-80.
    bases = [n for n in range(2, 174) if all(n % k for k in range(2, n))]

    def passes(candidate: int) -> bool:
        odd, twos = candidate - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in bases:
            power = pow(base, odd, candidate)
            if power in (1, candidate - 1):
                continue
            if not any((power := power * power % candidate) == candidate - 1 for _ in range(twos - 1)):
                return False
        return True

    assert PRIME == 2**256 + 297
    assert [offset for offset in range(1, 298) if passes(2**256 + offset)] == [297]


@settings(max_examples=40)
@given(st.data())
def test_any_threshold_of_shares_rebuilds_the_secret(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 20))
    threshold = data.draw(st.integers(2, count))
    indices = data.draw(st.lists(st.integers(1, 100), min_size=count, max_size=count, unique=True))
    secret = data.draw(st.binary(min_size=32, max_size=32))
    shares = deal(secret, threshold, indices)
    chosen = data.draw(st.lists(st.sampled_from(indices), min_size=threshold, unique=True))
    assert rebuild({index: shares[index] for index in chosen}, threshold) == secret


def test_fewer_shares_fit_every_secret_equally_well() -> None:
    """Perfect secrecy: whatever t − 1 shares say, each candidate secret has exactly one polynomial."""
    shares = deal(os.urandom(32), 3, [1, 2, 3])
    held = {index: int.from_bytes(shares[index], "big") for index in (1, 2)}
    for candidate in (0, 1, 2**256 - 1):
        points = {0: candidate, **held}
        # The value at 3 of the one quadratic through the three points, by Lagrange.
        third = 0
        for own, value in points.items():
            above, below = 1, 1
            for other in points:
                if other != own:
                    above, below = above * (3 - other) % PRIME, below * (own - other) % PRIME
            third = (third + value * above * pow(below, -1, PRIME)) % PRIME
        forged = {
            **{index: shares[index] for index in held},
            3: third.to_bytes(shamir.SHARE_BYTES, "big"),
        }
        assert rebuild(forged, 3) == candidate.to_bytes(32, "big")


def test_every_secret_is_a_field_element_at_both_ends() -> None:
    for secret in (bytes(32), b"\xff" * 32):
        shares = deal(secret, 2, [1, 2, 3])
        for pair in itertools.combinations(shares, 2):
            assert rebuild({index: shares[index] for index in pair}, 2) == secret


@pytest.mark.parametrize("indices", [[0, 1], [1, 1], [-1, 2], [PRIME, 1]])
def test_a_zero_or_repeated_index_is_refused_when_dealing_and_when_rebuilding(indices: list[int]) -> None:
    with pytest.raises(BadShare, match="distinct indices from 1"):
        evaluate([5, 7], indices)
    with pytest.raises(BadShare, match="distinct indices from 1"):
        weights_at_zero(indices)


def test_a_tampered_share_never_rebuilds_the_secret() -> None:
    secret = os.urandom(32)
    shares = deal(secret, 2, [1, 2])
    altered = (int.from_bytes(shares[2], "big") + 1) % PRIME
    try:
        rebuilt = rebuild({1: shares[1], 2: altered.to_bytes(33, "big")}, 2)
    except BadShare:
        return  # outside the 2^256 secrets: noticed at once
    assert rebuilt != secret


def test_what_is_not_a_field_element_or_not_a_secret_is_refused() -> None:
    with pytest.raises(BadShare, match="element of the field"):
        rebuild({1: PRIME.to_bytes(33, "big"), 2: bytes(33)}, 2)
    with pytest.raises(BadShare, match="element of the field"):
        rebuild({1: bytes(32), 2: bytes(33)}, 2)
    with pytest.raises(BadShare, match="longer than any secret"):
        rebuild(evaluate([2**256, 3], [1, 2]), 2)
    with pytest.raises(BelowThreshold, match="expected 3, got 2"):
        rebuild(evaluate([1, 2], [1, 2]), 3)


def test_a_share_under_threshold_one_would_be_the_secret_so_it_is_not_dealt() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        deal(bytes(32), 1, [1, 2])
    with pytest.raises(ValueError, match="32-byte secret"):
        deal(bytes(31), 2, [1, 2])
