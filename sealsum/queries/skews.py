"""What the opened sums of a statistic of silos say: labels, sizes and columns that differ from silo to silo.

Standard errors follow from the noise by the delta method. With no noise (sums of tables that lie here) the
same functions are exact, so a simulation and a federation read their data alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privacy.labels import classes_of
from privacy.query_blocks import feature_of
from privacy.query_skews import entropy_scale
from privacy.query_terms import LabelSkewStatistic, SiloAccuracyMetric, SizeSkewStatistic, Skew
from privacy.schema import CategoricalFeature, DataSchema, Feature, NumericFeature
from sealsum.queries.estimates import LEAST_COUNT, Estimate, estimates, ratio, reported, scaled
from sealsum.queries.statistics import label_names

Vector = NDArray[np.float64]
MADE_VALID: Final = "for the divergence, mean shares below 0 are taken as 0 and shares add up to 1"
_STEP: Final = 1e-3
"""Of a standard error: how far apart the points lie that a slope is taken between."""


def read_skew(asked: Skew, data: DataSchema, values: Vector, error: float, silos: int) -> dict[str, Any]:
    """One statistic of silos for JSON.

    Args:
        values: its block, float64 in the block's shape, divided by the block's factor.
        error: standard error of each of them; 0 for exact sums. silos: how many are in the sums.
    """
    if isinstance(asked, LabelSkewStatistic):
        return _label(asked, data, values.ravel(), error, silos)
    if isinstance(asked, SizeSkewStatistic):
        return _size(asked, values.ravel(), error, silos)
    feature = feature_of(asked.column, data)
    report: dict[str, Any] = {"kind": "column_skew", "column": asked.column}
    if isinstance(feature, CategoricalFeature):
        return report | _categories(values.reshape(2, -1), error)
    return report | _numbers(feature, values.ravel(), error)


def read_silo_accuracy(asked: SiloAccuracyMetric, values: Vector, error: float, silos: int) -> dict[str, Any]:
    """Mean and variance of silos' accuracies, and the part of the silos under the threshold, for JSON.

    Args:
        values: float64[3], as ``read_skew`` takes its own.
    """
    flat = values.ravel()

    def variance(sums: Vector) -> float:
        return float(sums[1] / silos - (sums[0] / silos) ** 2)

    return {
        "kind": "silo_accuracy",
        "silos": silos,
        "threshold": asked.threshold,
        "mean": Estimate(float(flat[0]) / silos, error / silos).report(),
        "variance": of_sums(variance, flat, error).report(),
        "under": Estimate(float(flat[2]) / (silos * asked.width), error / (silos * asked.width)).report(),
    }


def of_sums(figure: Callable[[Vector], float], values: Vector, error: float) -> Estimate:
    """A figure of opened sums, its error by the delta method: error · ‖slope‖, slopes by differences."""
    if error == 0.0:
        return Estimate(figure(values), 0.0)
    steps = np.eye(len(values)) * _STEP * error
    slopes = [(figure(values + step) - figure(values - step)) / (2 * _STEP * error) for step in steps]
    return Estimate(figure(values), error * math.hypot(*slopes))


def _label(
    asked: LabelSkewStatistic, data: DataSchema, values: Vector, error: float, silos: int
) -> dict[str, Any]:
    """(H(mean p) − mean H(p)) / log K (Lin 1991): 0 where silos are alike, 1 where they share no class."""
    classes = classes_of(data.label)
    scale = entropy_scale(asked.least, classes)

    def shares(sums: Vector) -> Vector:
        # Each silo's shares add up to 1, so their sum is known: what noise put beside it is taken out.
        mean: Vector = (sums[:-1] + (silos - sums[:-1].sum()) / classes) / silos
        return mean

    def divergence(sums: Vector) -> float:
        valid = np.maximum(shares(sums), 0.0)
        there = valid[valid > 0] / valid.sum()
        mean_entropy = float(sums[-1]) * math.log(classes) / (silos * scale)
        return float(-(there @ np.log(there)) - mean_entropy) / math.log(silos)

    means = estimates(shares(values), error / silos * math.sqrt(1 - 1 / classes))
    return {
        "kind": "label_skew",
        "silos": silos,
        "shares": [
            {"label": name} | share.report() for name, share in zip(label_names(data), means, strict=True)
        ],
        "divergence": of_sums(divergence, values, error).report(),
        "made_valid": MADE_VALID,
    }


def _size(asked: SizeSkewStatistic, values: Vector, error: float, silos: int) -> dict[str, Any]:
    """CV² = K Σn² / (Σn)² − 1, with the population's standard deviation."""
    first = Estimate(float(values[0]), error)
    report = {
        "kind": "size_skew",
        "silos": silos,
        "mean": reported(scaled(first, asked.most / silos)),
    }
    if first.value <= LEAST_COUNT * error or first.value <= 0:
        return report | {"variation": reported(None)}
    square = of_sums(lambda sums: float(silos * sums[1] / sums[0] ** 2 - 1), values, error)
    variation = math.sqrt(max(square.value, 0.0))
    # Near 0 the square is what noise is around: its root is at most as far off as the root of its error.
    near = square.value <= square.standard_error
    spread = math.sqrt(square.standard_error) if near else square.standard_error / (2 * variation)
    return report | {"variation": Estimate(variation, spread).report()}


def _numbers(feature: Feature, values: Vector, error: float) -> dict[str, Any]:
    if not isinstance(feature, NumericFeature):
        raise TypeError(f"{feature.column}: expected a numeric column")
    half, middle = (feature.high - feature.low) / 2, (feature.high + feature.low) / 2
    count, first, *_, ends = estimates(values, error)
    return {
        "mean": reported(scaled(ratio(first, count), half, middle)),
        "between": reported(_between(lambda v: (v[3:4], v[2:3], v[1:2], v[0]), values, error)),
        # A yes is its own square.
        "missing_between": reported(_between(lambda v: (v[5:6], v[4:5], v[4:5], v[0] + v[4]), values, error)),
        "missing": reported(_part(lambda v: (v[4], v[0] + v[4]), values, error)),
        "at_ends": reported(ratio(ends, count)),
    }


def _categories(values: Vector, error: float) -> dict[str, Any]:
    width, flat = values.shape[1], values.ravel()
    return {
        "between": reported(
            _between(lambda v: (v[width:], v[:width], v[:width], v[:width].sum()), flat, error)
        ),
        "missing_between": reported(
            _between(
                lambda v: (v[-1:], v[width - 1 : width], v[width - 1 : width], v[:width].sum()), flat, error
            )
        ),
        "missing": reported(_part(lambda v: (v[width - 1], v[:width].sum()), flat, error)),
    }


def _part(named: Callable[[Vector], tuple[float, float]], values: Vector, error: float) -> Estimate | None:
    """One sum over another; ``None`` where the other is near 0."""
    whole = of_sums(lambda sums: float(named(sums)[1]), values, error)
    if whole.value <= LEAST_COUNT * whole.standard_error or whole.value <= 0:
        return None
    return of_sums(lambda sums: float(named(sums)[0] / named(sums)[1]), values, error)


def _between(
    named: Callable[[Vector], tuple[Vector, Vector, Vector, float]], values: Vector, error: float
) -> Estimate | None:
    """Σ(B − S²/n) / Σ(Q − S²/n): the share of a column's variance that lies between silos.

    Of numbers it is η² (the correlation ratio), of categories Goodman and Kruskal's τ. ``None`` for a column
    that does not vary, or by no more than noise would have it.

    Args:
        named: from the sums Σ_k S_k²/n_k, Σx² and Σx, each float64[coordinates], and n.
    """

    def total(sums: Vector) -> float:
        _, squares, first, count = named(sums)
        return float((squares - np.square(first) / count).sum())

    def share(sums: Vector) -> float:
        between, _, first, count = named(sums)
        return float((between - np.square(first) / count).sum()) / total(sums)

    count = of_sums(lambda sums: float(named(sums)[3]), values, error)
    if count.value <= LEAST_COUNT * count.standard_error or count.value <= 0:
        return None
    whole = of_sums(total, values, error)
    if whole.value <= max(LEAST_COUNT * whole.standard_error, 1e-12 * count.value):
        return None
    return of_sums(share, values, error)
