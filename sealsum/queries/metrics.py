"""What the opened blocks of an evaluation say: loss, accuracy, confusion, ROC and calibration of a model."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privacy.query_blocks import Asked
from privacy.query_outcomes import OUTCOMES
from privacy.query_terms import AccuracyMetric, AucMetric, CalibrationMetric, ConfusionMetric
from privacy.schema import DataSchema
from sealsum.queries.estimates import (
    LEAST_COUNT,
    Estimate,
    estimates,
    linear,
    part_of,
    ratio,
    reported,
)
from sealsum.queries.outcomes import read_outcome
from sealsum.queries.statistics import label_names

Numbers = NDArray[np.float64]
MADE_VALID: Final = (
    "counts below 0 are taken as 0 for the curve; the area is of the counts as they were opened"
)


def read_metric(asked: Asked, data: DataSchema, values: Numbers, error: float) -> dict[str, Any]:
    """One metric for JSON.

    Args:
        values: its block, float64 in the block's shape, divided by the block's factor.
        error: standard error of each of them.
    """
    if isinstance(asked, OUTCOMES):
        return read_outcome(asked, data, values, error)
    if isinstance(asked, AccuracyMetric):
        right, wrong = estimates(values, error)
        return {
            "kind": "accuracy",
            "threshold": asked.threshold,
            "count": linear([(1.0, right), (1.0, wrong)]).report(),
            "accuracy": reported(part_of(right, wrong)),
        }
    if isinstance(asked, ConfusionMetric):
        return _confusion(asked, label_names(data), values, error)
    if isinstance(asked, AucMetric):
        return _area(asked, values, error)
    if isinstance(asked, CalibrationMetric):
        return _calibration(asked, values, error)
    raise TypeError(f"{asked.kind}: expected a metric")


def _confusion(asked: ConfusionMetric, names: list[str], values: Numbers, error: float) -> dict[str, Any]:
    matrix = [estimates(row, error) for row in values]
    report: dict[str, Any] = {
        "kind": "confusion",
        "threshold": asked.threshold,
        "labels": names,
        "matrix": [[cell.report() for cell in row] for row in matrix],
    }
    if len(matrix) == 2:
        (true_negative, false_positive), (false_negative, true_positive) = matrix
        report |= {
            "sensitivity": reported(part_of(true_positive, false_negative)),
            "specificity": reported(part_of(true_negative, false_positive)),
            "precision": reported(part_of(true_positive, false_positive)),
        }
    return report | {"classes": [_one_class(name, place, matrix) for place, name in enumerate(names)]}


def _one_class(name: str, place: int, matrix: list[list[Estimate]]) -> dict[str, Any]:
    """Recall, precision and F1 = 2·TP / (2·TP + FP + FN)."""
    right = matrix[place][place]
    missed = linear([(1.0, cell) for other, cell in enumerate(matrix[place]) if other != place])
    called = linear([(1.0, row[place]) for other, row in enumerate(matrix) if other != place])
    twice = linear([(2.0, right)])
    return {
        "label": name,
        "recall": reported(part_of(right, missed)),
        "precision": reported(part_of(right, called)),
        "f1": reported(part_of(twice, linear([(1.0, missed), (1.0, called)]))),
    }


def _area(asked: AucMetric, values: Numbers, error: float) -> dict[str, Any]:
    """Σ over pairs of bins of sick · healthy, half where they share one (Mann, Whitney 1947), over all pairs.

    Its error: the delta method, and the product of two noises, which the delta method leaves out.
    """
    healthy, sick = values
    bins = len(sick)
    counts = [Estimate(float(one.sum()), error * math.sqrt(bins)) for one in (healthy, sick)]
    below = np.cumsum(healthy) - healthy / 2
    above = np.cumsum(sick[::-1])[::-1] - sick / 2
    pairs = linear([(1.0, Estimate(float(sick @ below), 0.0))])
    report: dict[str, Any] = {
        "kind": "auc",
        "healthy": counts[0].report(),
        "sick": counts[1].report(),
    }
    enough = all(one.value >= LEAST_COUNT * one.standard_error for one in counts)
    if not enough:
        return report | {"auc": reported(None)}
    whole = counts[0].value * counts[1].value
    area = pairs.value / whole
    slopes = np.concatenate([below / whole - area / counts[1].value, above / whole - area / counts[0].value])
    products = math.sqrt(bins * (bins - 1) / 2 + bins / 4) * error**2 / whole
    estimate = Estimate(area, math.hypot(float(np.linalg.norm(slopes)) * error, products))
    return report | {
        "auc": estimate.report(),
        "roc": _curve(asked, healthy, sick),
        "made_valid": MADE_VALID,
    }


def _curve(asked: AucMetric, healthy: Numbers, sick: Numbers) -> list[dict[str, float]]:
    """False and true positive rate at each cut of the probability."""
    cuts = np.linspace(-asked.reach, asked.reach, asked.bins + 1)
    rates = []
    for one in (healthy, sick):
        valid = np.maximum(one, 0.0)
        whole = max(float(valid.sum()), 1e-12)
        rates.append(np.concatenate([np.cumsum(valid[::-1])[::-1] / whole, [0.0]]))
    return [
        {"probability": round(float(expit(cut)), 4), "false_positive": float(f), "true_positive": float(t)}
        for cut, f, t in zip(cuts, *rates, strict=True)
    ]


def _calibration(asked: CalibrationMetric, values: Numbers, error: float) -> dict[str, Any]:
    """Per bin Σ label against Σ probability; the expected calibration error, and that of noise alone."""
    rows = []
    gaps = []
    for number, row in enumerate(values):
        count, observed, predicted = estimates(row, error)
        gap = linear([(1.0, observed), (-1.0, predicted)])
        gaps.append(gap)
        rows.append(
            {
                "from": number / asked.bins,
                "to": (number + 1) / asked.bins,
                "count": count.report(),
                "predicted": reported(ratio(predicted, count)),
                "observed": reported(ratio(observed, count)),
                "difference": gap.report(),
            }
        )
    count = linear([(1.0, Estimate(float(row[0]), error)) for row in values])
    overall = ratio(linear([(1.0, gap) for gap in gaps]), count)
    report: dict[str, Any] = {
        "kind": "calibration",
        "bins": rows,
        "count": count.report(),
        "observed_less_predicted": reported(overall),
    }
    if overall is None:
        return report
    return report | {
        "expected_calibration_error": {
            "estimate": float(f"{sum(abs(gap.value) for gap in gaps) / count.value:.6g}"),
            "of_noise_alone": float(
                f"{sum(gap.standard_error for gap in gaps) * math.sqrt(2 / math.pi) / count.value:.6g}"
            ),
            "note": "noise only adds to it: compare it with what noise alone would give",
        }
    }
