"""What opened blocks about losses, numbers, masks and survival times say, with their standard errors."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privacy.labels import RealLabel
from privacy.query_outcomes import Outcome
from privacy.query_terms import ConcordanceMetric, DiceMetric, ErrorMetric, LossMetric
from privacy.schema import DataSchema
from sealsum.queries.estimates import LEAST_COUNT, Estimate, estimates, ratio, reported, scaled

Numbers = NDArray[np.float64]
_TIED: Final = "times in one bin are not compared; log-hazards in one bin count half"


def read_outcome(asked: Outcome, data: DataSchema, values: Numbers, error: float) -> dict[str, Any]:
    """One metric for JSON.

    Args:
        values: its block, float64 in the block's shape, divided by the block's factor.
        error: standard error of each of them.
    """
    if isinstance(asked, ConcordanceMetric):
        return {"kind": "concordance"} | _concordance(values, error) | {"note": _TIED}
    count, *sums = estimates(values, error)
    report: dict[str, Any] = {"kind": asked.kind, "count": count.report()}
    if isinstance(asked, LossMetric):
        return report | {"cap": asked.cap, "loss": reported(scaled(ratio(sums[0], count), asked.cap))}
    if isinstance(asked, DiceMetric):
        return report | {"threshold": asked.threshold, "dice": reported(ratio(sums[0], count))}
    return report | _errors(asked, data, count, sums)


def _errors(asked: ErrorMetric, data: DataSchema, count: Estimate, sums: list[Estimate]) -> dict[str, Any]:
    """In the label's own unit."""
    label = data.label
    if not isinstance(label, RealLabel):
        raise TypeError("error: expected a label that is a number")
    most = asked.cap * (label.high - label.low)
    square = ratio(sums[1], count)
    root = None
    if square is not None and square.value > LEAST_COUNT * square.standard_error:
        # d√x = dx / 2√x.
        value = math.sqrt(square.value)
        root = Estimate(most * value, most * square.standard_error / (2 * value))
    return {
        "column": label.column,
        "at_most": most,
        "mae": reported(scaled(ratio(sums[0], count), most)),
        "rmse": reported(root),
    }


def _concordance(values: Numbers, error: float) -> dict[str, Any]:
    """Harrell's C of the histogram: Σ over events of who came later with a lower hazard, over all who did.

    Both are products of counts, E·K·N and E·L·N with N all counts and E those of events. Its error: the delta
    method, and the product of two noises.
    """
    censored, events = values
    everybody = censored + events
    later = np.flip(np.cumsum(np.flip(everybody, 0), 0), 0) - everybody
    earlier = np.cumsum(events, 0) - events
    # Of one cell: what it is compared with, by lower or higher hazard, ties half.
    lower = np.cumsum(later, 1) - later / 2
    higher = np.flip(np.cumsum(np.flip(earlier, 1), 1), 1) - earlier / 2
    pairs = float((events * later.sum(1, keepdims=True)).sum())
    times, bins = values.shape[1:]
    happened = Estimate(float(events.sum()), error * math.sqrt(times * bins))
    report: dict[str, Any] = {"events": happened.report()}
    enough = happened.value >= LEAST_COUNT * happened.standard_error
    if not enough or pairs <= 0:
        return report | {"concordance": reported(None)}
    value = float((events * lower).sum()) / pairs
    of_all = (higher - value * earlier.sum(1, keepdims=True)) / pairs
    of_events = (lower - value * later.sum(1, keepdims=True)) / pairs + of_all
    slope = math.hypot(float(np.linalg.norm(of_all)), float(np.linalg.norm(of_events)))
    pairs_of_bins = bins * (bins - 1) / 2 * ((1 - value) ** 2 + value**2) + bins * (0.5 - value) ** 2
    products = math.sqrt(2 * times * (times - 1) / 2 * pairs_of_bins) * error**2 / pairs
    if pairs < LEAST_COUNT * _pairs_error(events, everybody, error):
        return report | {"concordance": reported(None)}
    return report | {"concordance": Estimate(value, math.hypot(slope * error, products)).report()}


def _pairs_error(events: Numbers, everybody: Numbers, error: float) -> float:
    """Standard error of how many pairs there are, by the delta method and the product of noises."""
    later = np.flip(np.cumsum(np.flip(everybody.sum(1)))) - everybody.sum(1)
    earlier = np.cumsum(events.sum(1)) - events.sum(1)
    bins, times = events.shape[1], len(later)
    slope = math.sqrt(bins) * float(np.linalg.norm(np.concatenate([earlier, later + earlier])))
    return math.hypot(slope * error, bins * math.sqrt(times * (times - 1)) * error**2)
