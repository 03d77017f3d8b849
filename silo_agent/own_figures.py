"""How a model does on the silo's own records, in plain figures that stay here. Knows no file, no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privacy import measures
from privacy.labels import AnyLabel, RealLabel
from silo_agent.data.records import Records

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class OwnFigure:
    """One figure, or why these records have none."""

    value: float | None
    why_not: str = ""


def own_figures(
    label: AnyLabel, records: Records, scores: Vector, threshold: float = 0.5
) -> dict[str, OwnFigure]:
    """Every figure that the label has, by name.

    Args:
        scores: float64[n, outputs] of the model.
        threshold: of the probability, for two classes and masks.
    """
    return {name: _figure(of) for name, of in _asked(label, records, scores, threshold).items()}


def _asked(
    label: AnyLabel, records: Records, scores: Vector, threshold: float
) -> Mapping[str, Callable[[], float]]:
    truth = records.labels.astype(np.float64)
    if isinstance(label, RealLabel):
        unit = (label.high - label.low) / 2
        return {
            "mae": lambda: unit * measures.mae(scores[:, 0], truth),
            "rmse": lambda: unit * measures.rmse(scores[:, 0], truth),
        }
    if records.kind == "mask":
        return {"dice": lambda: float(measures.dice(expit(scores) >= threshold, truth).mean())}
    if records.kind != "classes":
        return {"concordance": partial(measures.concordance, scores[:, 0], truth[:, 0], truth[:, 1])}
    if records.classes > 2:
        likeliest = scores.argmax(axis=1)
        return {
            "accuracy": partial(measures.accuracy, likeliest, truth),
            "macro_f1": partial(measures.macro_f1, likeliest, truth),
        }
    chance = expit(scores[:, 0])
    predicted = measures.at_threshold(chance, threshold)
    return {
        "accuracy": partial(measures.accuracy, predicted, truth),
        "auc": partial(measures.auc, chance, truth),
        "recall": partial(measures.recall, predicted, truth),
        "precision": partial(measures.precision, predicted, truth),
        "f1": partial(measures.f1, predicted, truth),
        "calibration_error": partial(measures.calibration_error, chance, truth),
    }


def _figure(of: Callable[[], float]) -> OwnFigure:
    try:
        return OwnFigure(of())
    except measures.MeasureUndefined as reason:
        return OwnFigure(None, str(reason))
