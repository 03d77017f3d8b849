"""Training metrics as a private sum beside the gradient's: its mechanism, and what its opened sum says.

A unit of the step's sample adds (1 − margin) · (m₁, …, 1) / √k, each metric mᵢ in [0, 1]: a vector of norm at
most 1 − margin, to which rounding onto the grid adds at most the margin (``privacy.dp.integer_noise``, whose
argument holds for this sum with C = 1). Gradient and metrics are of one sample and noised independently;
``DpTerms.charged_noise_multiplier`` is the one mechanism that they are together. Pure numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from privacy.dp.integer_noise import LARGEST_BATCH, TAIL, IntegerMechanism
from privacy.errors import Unprocessable
from privacy.plan import DpTerms, VectorTerms
from privacy.vector_terms import MetricTerms

LEAST_COUNT = 4.0
"""Standard deviations of its noise that a count must exceed to be divided by."""


def metrics_mechanism(dp: DpTerms, metrics: MetricTerms, vector: VectorTerms) -> IntegerMechanism:
    """One silo's part: with distributed noise it adds a share of it, as to the gradient."""
    steps_per_unit = 2.0**vector.scale_bits
    margin = math.sqrt(metrics.coordinates) / steps_per_unit
    own = metrics.noise_multiplier / math.sqrt(dp.noise_shares or 1)
    return IntegerMechanism(steps_per_unit, 1.0 - margin, steps_per_unit * own, margin)


def least_metrics_bound(dp: DpTerms, metrics: MetricTerms, vector: VectorTerms) -> float:
    """The smallest ``coordinate_bound`` under which no honest silo of an ordinary size refuses its metrics.

    As for the gradient: ``LARGEST_BATCH`` normalisers of units, ``TAIL`` deviations, a step of rounding.
    """
    own = metrics.noise_multiplier / math.sqrt(dp.noise_shares or 1)
    units = LARGEST_BATCH * dp.normaliser / math.sqrt(metrics.coordinates)
    return units + TAIL * own + 2.0**-vector.scale_bits


def read_metrics(
    dp: DpTerms, vector: VectorTerms, sums: Sequence[float], survivors: int
) -> dict[str, float] | None:
    """Means per unit of the sample, by name; ``None`` where the noise leaves no count to divide by.

    Both sums are noisy, so a mean may lie outside its range; nothing is cut to look better. A count below
    ``LEAST_COUNT`` standard deviations of its noise is not divided by.

    Args:
        sums: the opened sum, one for each name and the count last. survivors: silos whose noise is in it.

    Raises:
        Unprocessable: the terms ask for no metrics, or not for as many.
    """
    metrics = dp.metrics
    if metrics is None or len(sums) != metrics.coordinates:
        asked = 0 if metrics is None else metrics.coordinates
        raise Unprocessable(f"metrics: expected {asked} sums, got {len(sums)}")
    mechanism = metrics_mechanism(dp, metrics, vector)
    if sums[-1] <= LEAST_COUNT * math.sqrt(survivors) * mechanism.deviation / mechanism.steps_per_unit:
        return None
    scale = {"loss": metrics.loss_cap or 1.0}
    return {
        name: scale.get(name, 1.0) * total / sums[-1]
        for name, total in zip(metrics.names, sums[:-1], strict=True)
    }
