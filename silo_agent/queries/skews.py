"""A silo's term in a statistic of silos, from all of its patients. Draws no noise, knows no plan.

One patient moves a term by at most the bound that ``privacy.query_skews`` proves: shares of a patient add up
to 1, numbers are clipped to [−1, 1], a record is in one class and one category, what is no number adds
nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.query_skews import entropy_scale
from privacy.query_terms import LabelSkewStatistic, SiloAccuracyMetric, SizeSkewStatistic
from privacy.schema import CategoricalFeature, Feature
from silo_agent.data.records import Records
from silo_agent.queries.units import counted

Vector = NDArray[np.float64]


def label_skew(asked: LabelSkewStatistic, classes: int, records: Records, shares: Vector) -> Vector:
    """(p, β H(p) / log C), float64[C + 1]."""
    counts = counted(records.labels, shares, classes)
    lacking = max(0.0, asked.least - float(counts.sum()))
    filled = counts + lacking / classes
    spread = filled / filled.sum()
    return np.append(spread, entropy_scale(asked.least, classes) * _entropy(spread) / np.log(classes))


def size_skew(asked: SizeSkewStatistic, records: Records) -> Vector:
    """(n/N, (n/N)²) of the silo's units, float64[2]."""
    part = min(records.unit_count, asked.most) / asked.most
    return np.array([part, part * part])


def numeric_skew(numbers: Vector, missing: NDArray[np.bool_], shares: Vector) -> Vector:
    """Present, Σx, Σx², S²/n, missing, M²/N, at the ends: float64[7].

    Args:
        numbers: float64[n], in [−1, 1] over the public range. missing: bool[n], where there is none.
    """
    there = np.isfinite(numbers) & ~missing
    x, present = np.clip(numbers[there], -1.0, 1.0), shares[there]
    count, total, absent = float(present.sum()), float(present @ x), float(shares[missing].sum())
    return np.array(
        [
            count,
            total,
            present @ np.square(x),
            _squared(total, count),
            absent,
            _squared(absent, count + absent),
            present[np.abs(x) >= 1.0].sum(),
        ]
    )


def category_skew(feature: Feature, chosen: NDArray[np.intp], shares: Vector) -> Vector:
    """Counts by category, "missing" last, then each squared over their sum: float64[2 (C + 1)]."""
    if not isinstance(feature, CategoricalFeature):
        raise TypeError(f"{feature.column}: expected categories")
    counts = counted(chosen, shares, len(feature.categories) + 1)
    whole = float(counts.sum())
    return np.concatenate([counts, [_squared(float(count), whole) for count in counts]])


def silo_accuracy(asked: SiloAccuracyMetric, right: NDArray[np.bool_], shares: Vector) -> Vector:
    """(m, m², width · r), float64[3]: r is 1 where m is half a width under the threshold, 0 as far above."""
    count = float(shares.sum())
    lacking = max(0.0, asked.least - count)
    mean = (float(shares[right].sum()) + lacking / 2) / max(count, float(asked.least))
    under = min(max(asked.threshold + asked.width / 2 - mean, 0.0), asked.width)
    return np.array([mean, mean * mean, under])


def _squared(total: float, count: float) -> float:
    """S²/n; nothing where nobody is."""
    return total * total / count if count > 0 else 0.0


def _entropy(spread: Vector) -> float:
    """In nats."""
    there = spread[spread > 0]
    return float(-(there @ np.log(there)))
