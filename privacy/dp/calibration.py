"""From a target ε to the noise that keeps a schedule just under it, by the accountant that will charge it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privacy.dp.accountant import Price, epsilon_rdp, price
from privacy.dp.events import Adjacency, DpEvent
from privacy.dp.grid import noise_at, tick_at_or_above
from privacy.errors import ConfigurationError

LEAST_NOISE, MOST_NOISE = 0.1, 1e6
"""Noise that is looked at. Less than the first protects nobody; more than the second trains nothing."""
_STRIDE = 1.2
_NEAR = 1e-4
"""A result this near below the target, relative to it, is near enough."""


@dataclass(frozen=True)
class Calibration:
    """The noise found, and what the schedule costs with it."""

    noise_multiplier: float
    price: Price


def calibrated_noise(
    target: float, delta: float, sample_rate: float, steps: int, adjacency: Adjacency
) -> Calibration:
    """The noise at which ``steps`` sampled Gaussians cost at most ``target`` and hardly less.

    The search goes over the ticks of the grid and keeps its upper end admissible throughout, so the result
    never overshoots. It is ``LEAST_NOISE`` where even that costs no more than the target.

    Raises:
        ConfigurationError: δ is not in (0, 1), ``target`` not above 0, or even ``MOST_NOISE`` costs more.
    """

    def event(tick: int) -> DpEvent:
        return DpEvent(sample_rate=sample_rate, noise_multiplier=noise_at(tick), steps=steps)

    def priced(tick: int) -> Price:
        return price([event(tick)], delta, adjacency)

    least, high = tick_at_or_above(LEAST_NOISE), tick_at_or_above(MOST_NOISE)
    if not 0 < target < math.inf or not priced(high).epsilon <= target:
        raise ConfigurationError(
            f"epsilon: expected a target above 0 that {steps} steps at q = {sample_rate:g} can meet at "
            f"δ = {delta:g}, got {target:g}; ask for a larger ε, fewer steps or a smaller q"
        )
    # Rényi DP is an upper bound and quick: where it meets the target, the accountant does too.
    low = least
    while noise_at(high) > noise_at(low) * _STRIDE:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if epsilon_rdp([event(middle)], delta, adjacency) <= target else (middle, high)
        )
    # Downwards until the target is passed.
    best = priced(high)
    while (below := priced(low := max(least, tick_at_or_above(noise_at(high) / _STRIDE)))).epsilon <= target:
        high, best = low, below
        if high == least:
            return Calibration(noise_at(high), best)
    # Between both ends, by the straight line in logarithms and, in turn, by halves.
    halve = False
    while high - low > 1 and best.epsilon < target * (1 - _NEAR):
        middle = (low + high) // 2 if halve else _secant(low, below.epsilon, high, best.epsilon, target)
        halve = not halve
        costs = priced(middle)
        if costs.epsilon <= target:
            high, best = middle, costs
        else:
            low, below = middle, costs
    return Calibration(noise_at(high), best)


def _secant(low: int, dear: float, high: int, cheap: float, target: float) -> int:
    """A tick strictly between both ends, just on the admissible side of where the line meets the target."""
    share = 0.5
    if cheap > 0:
        share = math.log(dear / (target * (1 - _NEAR / 2))) / math.log(dear / cheap)
    noise = noise_at(low) * (noise_at(high) / noise_at(low)) ** min(max(share, 0.0), 1.0)
    return min(max(tick_at_or_above(noise), low + 1), high - 1)
