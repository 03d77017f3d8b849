"""ε computed anew, with nothing but ``math``: an upper bound by Rényi DP and a lower bound by one test.

The platform claims ε by privacy-loss distributions. A true claim lies between what Rényi DP proves at
most and what a concrete test on the released steps already distinguishes at least.
"""

from __future__ import annotations

import math
from functools import cache

_ORDERS = (*range(2, 257), 384, 512)
_TAILS = 9.0
"""Standard deviations of the step count beyond which a binomial term is dropped (makes the bound smaller)."""
_THRESHOLDS = 400
_LEAST_TAIL = 1e-290
"""Tails below this lose digits in double precision and are not used."""


@cache
def epsilon_upper(rate: float, noise: float, steps: int, delta: float) -> float:
    """Upper bound on ε of ``steps`` Poisson-sampled Gaussian mechanisms, add/remove adjacency.

    Rényi DP at integer orders (Mironov, Talwar, Zhang 2019, section 3.3), turned into (ε, δ) by
    Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    least = math.inf
    for order in _ORDERS:
        conversion = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        least = min(least, steps * renyi(rate, noise, order) + conversion)
    return max(0.0, least)


@cache
def renyi(rate: float, noise: float, order: int) -> float:
    """Rényi divergence of one step at an integer ``order`` ≥ 2.

    log E[(ν/μ)^α] = log Σ_k C(α,k) (1−q)^(α−k) q^k exp((k² − k) / 2σ²), and α/2σ² without sampling.
    """
    if rate == 1.0:
        return order / (2 * noise**2)
    terms = [_log_binomial(order, k, rate) + (k * k - k) / (2 * noise**2) for k in range(order + 1)]
    return _log_sum(terms) / (order - 1)


@cache
def epsilon_lower(rate: float, noise: float, steps: int, delta: float) -> float:
    """Lower bound on ε: what the test "the outputs of all steps add up to more than t" tells, at the best t.

    Without the unit the sum is N(0, Tσ²); with it N(K, Tσ²), K ~ Bin(T, q). (ε, δ)-DP demands
    P[S] ≤ e^ε Q[S] + δ for every event S (Dwork, Roth 2014, Definition 2.4), so each t bounds ε below.
    """
    spread = noise * math.sqrt(steps)
    centre, width = steps * rate, _TAILS * math.sqrt(steps * rate * (1 - rate)) + 1
    counts = range(max(0, int(centre - width)), min(steps, int(centre + width) + 1) + 1)
    weights = [(k, math.exp(_log_binomial(steps, k, rate))) for k in counts]
    best = 0.0
    low, high = -6 * spread, min(float(steps), centre + width) + 6 * spread
    for step in range(_THRESHOLDS + 1):
        threshold = low + (high - low) * step / _THRESHOLDS
        without = _tail(threshold / spread)
        # Both directions of add/remove: S = {sum > t}, and its complement with the roles exchanged.
        present = math.fsum(weight * _tail((threshold - k) / spread) for k, weight in weights)
        absent = math.fsum(weight * _tail((k - threshold) / spread) for k, weight in weights)
        for likely, unlikely in ((present, without), (_tail(-threshold / spread), absent)):
            if likely > delta and unlikely > _LEAST_TAIL:
                best = max(best, math.log((likely - delta) / unlikely))
    return best


def _tail(x: float) -> float:
    """P[N(0,1) > x]."""
    return math.erfc(x / math.sqrt(2)) / 2


def _log_binomial(n: int, k: int, rate: float) -> float:
    """log C(n,k) q^k (1−q)^(n−k)."""
    if rate == 1.0:
        return 0.0 if k == n else -math.inf
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choose + k * math.log(rate) + (n - k) * math.log1p(-rate)


def _log_sum(terms: list[float]) -> float:
    largest = max(terms)
    return largest + math.log(math.fsum(math.exp(term - largest) for term in terms))
