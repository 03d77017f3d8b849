"""The integer mechanism is as private as the Gaussian it stands for: exact laws, summed at small sizes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.dp.integer_noise import LEAST_DEVIATION, TAIL, integer_mechanism, least_coordinate_bound
from privacy.plan import DpTerms, TrainingTerms, VectorTerms

VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=16)
TRAINING = TrainingTerms(algorithm="dp_fedsgd", local_steps=1, learning_rate=2.0, server_learning_rate=1.0)


def terms(**changes: object) -> DpTerms:
    fields = {"sample_rate": 1.0, "noise_multiplier": 3.0, "clip_l2": 0.5, "normaliser": 100.0, "delta": 1e-5}
    return DpTerms.model_validate({"unit": "patient"} | fields | changes)


def rounded(deviation: float, shift: float = 0.0) -> NDArray[np.float64]:
    """Law of round(N(shift, deviation²)) on −reach … reach, with full precision in both tails."""
    reach = math.ceil(14 * deviation) + 8
    edges = (np.arange(-reach, reach + 2) - 0.5 - shift) / deviation
    below, above = ndtr(edges), ndtr(-edges)
    law: NDArray[np.float64] = np.where(edges[:-1] < 0, np.diff(below), -np.diff(above))
    return law


def summed(law: NDArray[np.float64], shares: int) -> NDArray[np.float64]:
    """Law of the sum of independent copies."""
    total = law
    for _ in range(shares - 1):
        total = np.convolve(total, law)
    return total


def rounding_of_dithered(deviation: float, shares: int, length: int) -> NDArray[np.float64]:
    """Law of round(N(0, shares · deviation²) + W), W of ``shares − 1`` uniforms on ±½, by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    points, masses = np.zeros(1), np.ones(1)
    for _ in range(shares - 1):
        points = np.add.outer(points, nodes / 2).ravel()
        masses = np.multiply.outer(masses, weights / 2).ravel()
    reach, wide = length // 2, deviation * math.sqrt(shares)
    edges = np.arange(-reach, reach + 2) - 0.5
    chances = ndtr((edges[:, None] - points[None, :]) / wide) @ masses
    return np.diff(chances)


@pytest.mark.parametrize("shares", [2, 3])
@pytest.mark.parametrize("deviation", [0.4, 0.6, 0.8, 1.0])
def test_a_sum_of_rounded_shares_is_the_rounding_of_their_sum_up_to_aliasing(
    deviation: float, shares: int
) -> None:
    """The claim of docs/privacy.md: total variation of at most 2^shares · exp(−π²Σ²)."""
    law = summed(rounded(deviation), shares)
    distance = 0.5 * np.abs(law - rounding_of_dithered(deviation, shares, len(law))).sum()
    assert distance <= 2.0**shares * math.exp(-((math.pi * deviation) ** 2)) + 1e-13


def test_aliasing_is_there_where_a_share_is_too_narrow_and_gone_at_the_least_deviation() -> None:
    narrow = summed(rounded(0.25), 2)
    assert 0.5 * np.abs(narrow - rounding_of_dithered(0.25, 2, len(narrow))).sum() > 1e-2
    assert math.exp(-((math.pi * LEAST_DEVIATION) ** 2)) < 1e-68


def gaussian_delta(mu: float, eps: float) -> float:
    """δ(ε) of N(0, 1) against N(μ, 1) (Balle, Wang 2018, theorem 8)."""
    return float(ndtr(mu / 2 - eps / mu) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu)))


@pytest.mark.parametrize("shares", [1, 2, 3])
@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("deviation", [1.5, 4.0])
def test_a_shift_by_integers_is_hidden_no_worse_than_by_the_gaussian_that_is_charged(
    deviation: float, shift: int, shares: int
) -> None:
    """Hockey-stick divergence of Z and Z + Δ, in both directions, at every ε, against the Gaussian's δ(ε)."""
    law = summed(rounded(deviation), shares)
    moved, still = np.pad(law, (shift, 0)), np.pad(law, (0, shift))
    mu = shift / (deviation * math.sqrt(shares))
    for eps in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        allowed = gaussian_delta(mu, eps) + 2.0**shares * math.exp(-((math.pi * deviation) ** 2)) + 1e-12
        for likely, other in ((moved, still), (still, moved)):
            assert np.maximum(likely - math.exp(eps) * other, 0).sum() <= allowed


def test_two_coordinates_hide_a_shift_no_worse_than_its_length_says() -> None:
    law = summed(rounded(2.0), 2)
    still = np.multiply.outer(np.pad(law, (0, 3)), np.pad(law, (0, 4)))
    moved = np.multiply.outer(np.pad(law, (3, 0)), np.pad(law, (4, 0)))
    for eps in (0.0, 0.5, 1.0, 3.0):
        allowed = gaussian_delta(5 / (2.0 * math.sqrt(2)), eps) + 1e-10
        assert np.maximum(moved - math.exp(eps) * still, 0).sum() <= allowed


def test_the_gaussians_delta_here_is_the_accountants() -> None:
    eps = epsilon([DpEvent(sample_rate=1.0, noise_multiplier=3.0, steps=1)], 1e-5)
    assert gaussian_delta(1 / 3, eps) == pytest.approx(1e-5, rel=1e-5)


@given(
    sums=arrays(np.float64, 12, elements=st.floats(-50, 50)),
    gradient=arrays(np.float64, 12, elements=st.floats(-1, 1)),
    steps=st.floats(20.0, 5000.0),
)
def test_one_unit_moves_the_integers_by_at_most_the_clip_norm(
    sums: NDArray[np.float64], gradient: NDArray[np.float64], steps: float
) -> None:
    clip = 1.0 - math.sqrt(12) / steps
    length = float(np.linalg.norm(gradient))
    one = gradient * min(1.0, clip / length) if length > 0 else gradient
    moved = np.rint(-steps * (sums + one)) - np.rint(-steps * sums)
    assert np.linalg.norm(moved) <= steps * 1.0 * (1 + 1e-12)


def test_without_the_margin_rounding_does_pass_the_clip_norm() -> None:
    """The margin is needed: ties that round apart move each coordinate by a whole step."""
    sums, one = np.full(4, 0.5 - 1e-9), np.full(4, 2e-9)
    assert np.linalg.norm(np.rint(sums + one) - np.rint(sums)) == 2.0 > np.linalg.norm(one)


def test_the_mechanism_is_in_steps_of_the_grid() -> None:
    mechanism = integer_mechanism(terms(), TRAINING, VECTOR, coordinates=1024)
    assert mechanism.steps_per_unit == 2**16 * 2.0 / 100
    assert mechanism.deviation == pytest.approx(mechanism.steps_per_unit * 3.0 * 0.5)
    assert mechanism.clip == pytest.approx(0.5 - 32 / mechanism.steps_per_unit)
    assert mechanism.margin == pytest.approx(1 - mechanism.clip / 0.5)


def test_shares_of_noise_add_up_to_all_of_it() -> None:
    for shares in (1, 2, 5, 9):
        own = integer_mechanism(terms(model="distributed", noise_shares=shares), TRAINING, VECTOR, 1024)
        whole = integer_mechanism(terms(), TRAINING, VECTOR, 1024)
        assert shares * own.deviation**2 == pytest.approx(whole.deviation**2)
        assert (own.clip, own.steps_per_unit) == (whole.clip, whole.steps_per_unit)


def test_the_least_bound_holds_four_normalisers_of_units_and_the_tail_of_the_noise() -> None:
    mechanism = integer_mechanism(terms(), TRAINING, VECTOR, 1024)
    worst = 4 * 100 * 0.5 * mechanism.steps_per_unit + TAIL * mechanism.deviation + 1
    assert least_coordinate_bound(terms(), TRAINING, VECTOR) == pytest.approx(worst / 2**16)


def test_more_noise_more_room() -> None:
    bounds = [
        least_coordinate_bound(terms(noise_multiplier=noise), TRAINING, VECTOR) for noise in (1.0, 3.0, 30.0)
    ]
    assert all(less < more for less, more in pairwise(bounds))
