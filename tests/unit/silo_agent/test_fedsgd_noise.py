"""Noise draws: normal to the last bits, deep in both tails, and nothing that anybody can seed."""

from __future__ import annotations

import os

import mpmath  # type: ignore[import-untyped]  # it ships none
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from silo_agent import randomness
from silo_agent.randomness import gaussian

PRECISION = 2.0**-50
"""What docs/privacy.md states: |draw − exact| ≤ 2⁻⁵⁰ · max(1, |z|)."""


def drawn(monkeypatch: pytest.MonkeyPatch, *words: int) -> float:
    """The draw that these words of the keystream give: sign and first 63 bits, then 64 more if asked for."""
    left = [np.array([word], dtype="<u8").view("<u4") for word in words]

    def keystream(key: bytes, start: int, length: int) -> np.ndarray:
        return left.pop(0)[:length] if length else np.empty(0, dtype="<u4")

    monkeypatch.setattr(randomness, "keystream", keystream)
    return float(gaussian(1, 1.0)[0])


def exact(probability: mpmath.mpf) -> mpmath.mpf:
    """z with Φ(z) = ``probability``, by Newton's method at 60 digits."""
    z = mpmath.mpf(float(ndtri(float(probability))))
    for _ in range(4):
        z -= (mpmath.ncdf(z) - probability) / mpmath.npdf(z)
    return z


@pytest.mark.parametrize("bits", [1, 2, 5, 11, 12, 20, 40, 63, 64, 90, 128])
def test_a_draw_is_the_normal_number_of_its_probability_to_the_last_bits(
    monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """``bits``: how deep in the tail, as the number of leading zeros of the probability."""
    value = (1 << (128 - bits)) | int.from_bytes(os.urandom(16), "big") >> (bits + 1)
    first, more = value >> 64, value & (2**64 - 1)
    with mpmath.workdps(60):
        # The first word's last bit is the sign; the probability is (cell + fraction) / 2^64.
        cell = first & (2**63 - 1)
        fraction = (mpmath.mpf(more) + 0.5) / 2**64 if cell < 2**53 else mpmath.mpf(0)
        z = exact((cell + fraction) / mpmath.mpf(2) ** 64) if cell or more else mpmath.mpf(0)
        got = drawn(monkeypatch, cell << 1, more)
        assert abs(got - z) <= PRECISION * max(1, abs(z))
        assert drawn(monkeypatch, cell << 1 | 1, more) == -got


def test_the_smallest_probability_lies_beyond_thirteen_deviations_and_the_largest_at_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert -13.5 < drawn(monkeypatch, 0, 0) < -13.0
    assert abs(drawn(monkeypatch, 2**64 - 2)) < 1e-15


def test_draws_are_normal_and_symmetric() -> None:
    draws = gaussian(400_000, 2.0)
    assert stats.kstest(draws, "norm", args=(0.0, 2.0)).pvalue > 1e-6
    assert abs((draws > 0).mean() - 0.5) < 6 * 0.5 / np.sqrt(len(draws))
    assert stats.kstest(draws[draws > 0] / 2, "halfnorm").pvalue > 1e-6


def test_no_two_draws_are_alike_and_none_is_none() -> None:
    draws = gaussian(100_000, 1.0)
    assert len(np.unique(draws)) == len(draws)
    assert gaussian(0, 1.0).shape == (0,)
