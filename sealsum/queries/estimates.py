"""Numbers with the error that the added noise gives them, and what follows from several of them.

Errors are of the noise alone, whose deviation is public: they say how far a number may be from the sum over
the patients who are there, not how far those are from a population. Nothing here is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

CONFIDENCE: Final = 0.95
LEAST_COUNT: Final = 4.0
"""Standard errors that a denominator must be above 0; closer to it, a ratio has no error worth stating."""


@dataclass(frozen=True)
class Estimate:
    """A value and the standard error that noise gives it."""

    value: float
    standard_error: float

    @property
    def interval(self) -> tuple[float, float]:
        """Where the sum over the patients lies, with 95 % confidence."""
        reach = normal_quantile(0.5 + CONFIDENCE / 2) * self.standard_error
        return self.value - reach, self.value + reach

    def report(self) -> dict[str, Any]:
        """For JSON."""
        low, high = self.interval
        return {
            "estimate": _rounded(self.value),
            "standard_error": _rounded(self.standard_error),
            "interval_95": [_rounded(low), _rounded(high)],
        }


def normal_quantile(probability: float) -> float:
    """Of the standard normal distribution."""
    return float(ndtri(probability))


def estimates(values: NDArray[np.float64], standard_error: float) -> list[Estimate]:
    """One for each number of a block; noise is independent and of one size within a block."""
    return [Estimate(float(value), standard_error) for value in values.ravel()]


def linear(terms: Sequence[tuple[float, Estimate]]) -> Estimate:
    """Σ factor · estimate, of independent estimates."""
    return Estimate(
        math.fsum(factor * one.value for factor, one in terms),
        math.sqrt(math.fsum((factor * one.standard_error) ** 2 for factor, one in terms)),
    )


def ratio(above: Estimate, below: Estimate) -> Estimate | None:
    """above / below of independent estimates, its error by the delta method; ``None`` if below is near 0."""
    if below.value < LEAST_COUNT * below.standard_error or below.value <= 0:
        return None
    value = above.value / below.value
    error = math.hypot(above.standard_error, value * below.standard_error) / below.value
    return Estimate(value, error)


def part_of(part: Estimate, rest: Estimate) -> Estimate | None:
    """part / (part + rest) of independent estimates; ``None`` if their sum is near 0."""
    whole = linear([(1.0, part), (1.0, rest)])
    if whole.value < LEAST_COUNT * whole.standard_error or whole.value <= 0:
        return None
    value = part.value / whole.value
    error = math.hypot((1 - value) * part.standard_error, value * rest.standard_error) / whole.value
    return Estimate(value, error)


def scaled(estimate: Estimate | None, factor: float, offset: float = 0.0) -> Estimate | None:
    """offset + factor · estimate."""
    if estimate is None:
        return None
    return Estimate(offset + factor * estimate.value, abs(factor) * estimate.standard_error)


def reported(estimate: Estimate | None) -> dict[str, Any]:
    """For JSON, also where there is too little to say."""
    if estimate is None:
        return {"estimate": None, "note": "too few values beside the noise to divide by their number"}
    return estimate.report()


def _rounded(number: float) -> float:
    """Six significant digits: more would be noise."""
    return float(f"{number:.6g}")
