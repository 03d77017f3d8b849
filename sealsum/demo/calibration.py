"""From a target ε to the least noise that keeps the whole job at or under it."""

from __future__ import annotations

import math

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import ConfigurationError

GRID = 0.01
"""Noise multipliers are multiples of this, so that a job's terms read as people would write them."""
_SMALLEST, _LARGEST = 0.3, 256.0


def least_noise(target: float, delta: float, sample_rate: float, steps: int) -> float:
    """The smallest multiple of ``GRID`` at which ``steps`` sampled Gaussians cost at most ``target``.

    Bisection over the grid keeps the upper end admissible throughout, so the answer never overshoots ε;
    ε is the accountant's own, rounded up.

    Raises:
        ConfigurationError: even the largest noise costs more than ``target``.
    """

    def cost(ticks: int) -> float:
        event = DpEvent(sample_rate=sample_rate, noise_multiplier=_multiplier(ticks), steps=steps)
        return epsilon([event], delta)

    low, high = math.floor(_SMALLEST / GRID), math.ceil(_LARGEST / GRID)
    if cost(low) <= target:
        return _multiplier(low)
    # Doubling first: small noise and few probes, and a PLD at large noise is cheap.
    probe = 2 * low
    while probe < high and cost(probe) > target:
        low, probe = probe, 2 * probe
    high = min(probe, high)
    if cost(high) > target:
        raise ConfigurationError(
            f"--epsilon: expected a target that {steps} steps can meet at δ = {delta:g}, got {target:g}; "
            "ask for a larger ε or fewer rounds"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return _multiplier(high)


def _multiplier(ticks: int) -> float:
    """Ticks of the grid as the decimal number they stand for (0.29, not 0.29000000000000004)."""
    return round(ticks * GRID, 2)
