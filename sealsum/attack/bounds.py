"""Lower bounds of ε from how well guesses about canaries come out. Pure numbers: knows no federation.

A canary is a record whose presence a fair coin decides; an attacker scores each canary by what he sees,
higher where it seems present. Two bounds of what that shows:

``gaussian_mu`` takes scores for normal, with one deviation, and a shift where the canary is present. It is
tight where that model holds (one full-batch step through a Gaussian mechanism), and no certificate elsewhere.

``one_run_epsilon`` is certified for every mechanism (Steinke, Nasr, Jagielski 2023, arXiv 2305.08846), is
weaker, and takes one run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_HALVINGS = 60
MOST_MU = 1e4
"""Larger ones are stated as this: ε is in the millions, and there may be no noise at all."""


@dataclass(frozen=True)
class Scores:
    """Canaries of one or more runs, each canary in one run only."""

    included: NDArray[np.bool_] = field(repr=False)
    """bool[m]: what the coins said."""
    values: NDArray[np.float64] = field(repr=False)
    """float64[m]"""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class MuBound:
    """How far apart scores with and without the canary are, in deviations."""

    estimate: float
    at_least: float
    """Below the true μ but for the stated error rate."""


def gaussian_mu(scores: Scores, error: float) -> MuBound:
    """μ of N(μ, 1) against N(0, 1), and a lower bound that exceeds the true μ with probability ≤ ``error``.

    With d the difference of means, s the pooled deviation on ν degrees of freedom: d/σ is normal around μ
    with variance h² = 1/n₁ + 1/n₀, and ν s²/σ² is χ²; each may be off with half of the error rate:
    μ ≥ (d/s) · √(χ²_ν(error/2)/ν) − h · z(error/2).
    """
    present, absent = scores.values[scores.included], scores.values[~scores.included]
    freedom = len(scores) - 2
    squares = float(((present - present.mean()) ** 2).sum() + ((absent - absent.mean()) ** 2).sum())
    shift, deviation = float(present.mean() - absent.mean()), math.sqrt(squares / freedom)
    estimate = shift / max(deviation, abs(shift) / MOST_MU) if shift else 0.0
    shrunk = math.sqrt(float(stats.chi2.ppf(error / 2, freedom)) / freedom)
    width = math.sqrt(1 / len(present) + 1 / len(absent))
    return MuBound(estimate, estimate * shrunk - width * float(stats.norm.isf(error / 2)))


def correct_guesses(scores: Scores, guesses: int) -> int:
    """How many are right of ``guesses``, half "present" for the highest scores, half "absent" for the lowest.

    ``guesses`` must not depend on the scores; the other canaries are passed over. Where none is, "present" is
    guessed above the mean score.
    """
    if guesses == len(scores):
        return int((scores.included == (scores.values > scores.values.mean())).sum())
    order = np.argsort(scores.values, kind="stable")
    half = guesses // 2
    highest = scores.included[order[len(order) - (guesses - half) :]]
    return int(highest.sum() + (~scores.included[order[:half]]).sum())


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Most probable that an (ε, δ)-DP mechanism lets so many guesses come out right (Corollary 5.4).

    f(v) + 2mδ · max_i (f(v − i) − f(v))/i, where f(v) = P[Binomial(r, e^ε/(e^ε + 1)) ≥ v].
    """
    luck = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, luck))
    if not correct:
        return 1.0
    below = stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, luck)
    slack = float(np.max(np.cumsum(below) / np.arange(1, correct + 1)))
    return min(1.0, tail + 2 * canaries * delta * slack)


def one_run_epsilon(canaries: int, guesses: int, correct: int, error: float, delta: float) -> float:
    """Least ε that so many right guesses leave possible: above the true ε with probability ≤ ``error``."""

    def excluded(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) < error

    if not excluded(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while excluded(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excluded(middle) else (low, middle)
    return low


def area_under_curve(members: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Probability that a member scores higher than another, ties counted half (Mann, Whitney 1947)."""
    ranks = stats.rankdata(np.concatenate([members, others]))
    above = float(ranks[: len(members)].sum()) - len(members) * (len(members) + 1) / 2
    return above / (len(members) * len(others))


def area_deviation(area: float, members: int, others: int) -> float:
    """Standard deviation of an estimated area (Hanley, McNeil 1982)."""
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = (members - 1) * (one - area**2) + (others - 1) * (two - area**2) + area * (1 - area)
    return math.sqrt(max(spread, 0.0) / (members * others))


def found_at(members: NDArray[np.float64], others: NDArray[np.float64], false_alarms: float) -> int:
    """Members above the score that at most this share of the others exceeds."""
    allowed = int(false_alarms * len(others))
    return int((members > np.sort(others)[len(others) - 1 - allowed]).sum())


def share_at_least(found: int, of: int, error: float) -> float:
    """Lower bound of a probability (Clopper, Pearson 1934)."""
    return float(stats.beta.ppf(error, found, of - found + 1)) if found else 0.0
