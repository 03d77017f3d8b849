"""What the opened blocks of a request for statistics say: counts, means, variances, histograms, quantiles.

Counts are reported as they were opened, also where noise makes them negative. Where a derived number needs
valid counts, it says how they were made so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.labels import kind_name
from privacy.query_blocks import Asked, feature_of
from privacy.query_terms import CountStatistic, HistogramStatistic, LabelStatistic, VarianceStatistic
from privacy.schema import CategoricalFeature, ClassLabel, DataSchema, Label, NumericFeature
from sealsum.queries.estimates import (
    CONFIDENCE,
    LEAST_COUNT,
    Estimate,
    estimates,
    linear,
    normal_quantile,
    ratio,
    reported,
    scaled,
)

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
MADE_VALID: Final = (
    "for quantiles, counts below 0 are taken as 0 and values as spread evenly within their bin"
)


def read_statistic(
    asked: Asked, data: DataSchema, values: NDArray[np.float64], error: float
) -> dict[str, Any]:
    """One statistic for JSON.

    Args:
        values: its block, float64 in the block's shape, divided by the block's factor.
        error: standard error of each of them.
    """
    if isinstance(asked, CountStatistic):
        return {"kind": "count", "count": estimates(values, error)[0].report()}
    if isinstance(asked, LabelStatistic):
        rows = zip(label_names(data), estimates(values, error), strict=True)
        return {
            "kind": "label",
            "column": data.label.columns[0],
            "counts": [{"label": name} | count.report() for name, count in rows],
        }
    if isinstance(asked, HistogramStatistic):
        return _histogram(asked, data, values, error)
    feature = feature_of(asked.column, data)  # type: ignore[union-attr]  # metrics are read elsewhere
    if not isinstance(feature, NumericFeature):
        raise TypeError(f"{asked.kind}: expected a numeric column")
    return _moments(isinstance(asked, VarianceStatistic), feature, estimates(values, error))


def label_names(data: DataSchema) -> list[str]:
    """Classes in the order of their numbers."""
    label = data.label
    if isinstance(label, Label):
        return [f"{label.column} ≤ {label.threshold:g}", f"{label.column} > {label.threshold:g}"]
    if isinstance(label, ClassLabel):
        return list(label.categories)
    raise Unprocessable(f"data.label: expected a label of classes, got {kind_name(label.kind)}")


def _moments(with_variance: bool, feature: NumericFeature, sums: list[Estimate]) -> dict[str, Any]:
    """x in [−1, 1] stands for middle + half · x."""
    half, middle = (feature.high - feature.low) / 2, (feature.high + feature.low) / 2
    count, first = sums[0], sums[1]
    report: dict[str, Any] = {
        "kind": "variance" if with_variance else "mean",
        "column": feature.column,
        "count": count.report(),
        "sum": linear([(middle, count), (half, first)]).report(),
        "mean": reported(scaled(ratio(first, count), half, middle)),
    }
    if with_variance:
        report["variance"] = reported(scaled(_spread(count, first, sums[2]), half**2))
    return report


def _spread(count: Estimate, first: Estimate, second: Estimate) -> Estimate | None:
    """Σx²/n − (Σx/n)², its error by the delta method."""
    mean, square = ratio(first, count), ratio(second, count)
    if mean is None or square is None:
        return None
    slopes = (
        (2 * mean.value**2 - square.value, count),
        (-2 * mean.value, first),
        (1.0, second),
    )
    error = linear([(slope / count.value, one) for slope, one in slopes]).standard_error
    return Estimate(square.value - mean.value**2, error)


def _histogram(
    asked: HistogramStatistic, data: DataSchema, values: NDArray[np.float64], error: float
) -> dict[str, Any]:
    feature = feature_of(asked.column, data)
    names = label_names(data) if asked.by_label else [""]
    report: dict[str, Any] = {"kind": "histogram", "column": asked.column, "histograms": []}
    for name, counts in zip(names, values.reshape(len(names), -1), strict=True):
        one: dict[str, Any] = {"label": name} if asked.by_label else {}
        if isinstance(feature, CategoricalFeature):
            bins: list[dict[str, Any]] = [{"category": category} for category in feature.categories]
        else:
            edges = [feature.low, *asked.cuts, feature.high]
            bins = [{"from": low, "to": high} for low, high in pairwise(edges)]
            one |= _of_order(np.array(edges), counts[:-1], error)
        counted = estimates(counts, error)
        one["bins"] = [where | count.report() for where, count in zip(bins, counted[:-1], strict=True)]
        one["missing"] = counted[-1].report()
        report["histograms"].append(one)
    return report


def _of_order(edges: NDArray[np.float64], counts: NDArray[np.float64], error: float) -> dict[str, Any]:
    """Quantiles, and between which cuts all values surely lie."""
    return {
        "quantiles": [_quantile(edges, counts, error, chance) for chance in QUANTILES],
        "extremes": _extremes(edges, counts, error),
        "made_valid": MADE_VALID,
    }


def _quantile(
    edges: NDArray[np.float64], counts: NDArray[np.float64], error: float, chance: float
) -> dict[str, Any]:
    """Where the distribution function crosses ``chance``, between the two places where its band does."""
    if counts.sum() < LEAST_COUNT * error * len(counts) ** 0.5:
        return {"quantile": chance, "estimate": None, "note": "too few values beside the noise"}
    valid = np.maximum(counts, 0.0)
    whole = float(valid.sum())
    below = np.concatenate([[0.0], np.cumsum(valid)]) / whole
    # k noisy counts below a cut and m − k above it: Var F = ((1 − F)² k + F² (m − k)) σ² / n².
    places = np.arange(len(edges))
    spread = np.sqrt((1 - below) ** 2 * places + below**2 * (len(counts) - places)) * error / whole
    reach = normal_quantile(0.5 + CONFIDENCE / 2) * spread
    low, high = np.maximum.accumulate(below + reach), np.maximum.accumulate(below - reach)
    return {
        "quantile": chance,
        "estimate": float(f"{np.interp(chance, below, edges):.6g}"),
        "interval_95": [_first_above(edges, low, chance), _last_below(edges, high, chance)],
    }


def _first_above(edges: NDArray[np.float64], band: NDArray[np.float64], chance: float) -> float:
    """The cut before which even the upper band has not reached ``chance``."""
    return float(edges[max(int(np.searchsorted(band, chance, side="left")) - 1, 0)])


def _last_below(edges: NDArray[np.float64], band: NDArray[np.float64], chance: float) -> float:
    """The cut at which even the lower band has passed ``chance``."""
    return float(edges[min(int(np.searchsorted(band, chance, side="right")), len(edges) - 1)])


def _extremes(edges: NDArray[np.float64], counts: NDArray[np.float64], error: float) -> dict[str, Any]:
    """The outermost bins that hold more than noise would put into any of them, 95 times in 100.

    The true least and largest value belong to single patients: no private mechanism can tell them well.
    """
    threshold = error * normal_quantile(1 - (1 - CONFIDENCE) / len(counts))
    filled = np.flatnonzero(counts > threshold)
    if len(filled) == 0:
        return {"low": None, "high": None, "note": "no bin holds more than noise might put there"}
    return {
        "low": float(edges[filled[0]]),
        "high": float(edges[filled[-1] + 1]),
        "note": f"cuts around all bins with more than {threshold:.4g}; single patients may lie beyond",
    }
