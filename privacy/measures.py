"""How good scores are on records whose labels are known: plain, exact, for whoever may see the records.

What a silo tells itself, and what benchmarks and simulations report. What others are told is summed, noised
and charged (``privacy.query_terms``). Knows no model and no noise; a figure that does not exist is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from privacy.errors import SealsumError

Numbers = NDArray[np.floating[Any]] | NDArray[np.integer[Any]] | NDArray[np.bool_]


class MeasureUndefined(SealsumError):
    """These records have no such figure, such as an AUC of one class."""


def auc(scores: Numbers, labels: Numbers) -> float:
    """Probability that a record of class 1 scores above one of class 0, ties half (Mann, Whitney 1947).

    Args:
        scores: [n], any monotone score. labels: [n], 1 or 0.

    Raises:
        MeasureUndefined: one of the two classes is absent.
    """
    _assert_paired("AUC", scores, labels)
    positive = labels > 0.5
    sick, healthy = int(positive.sum()), int((~positive).sum())
    if sick == 0 or healthy == 0:
        raise MeasureUndefined("AUC: expected records of both classes, got one class")
    ranks = rankdata(scores.astype(np.float64))
    return float((ranks[positive].sum() - sick * (sick + 1) / 2) / (sick * healthy))


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """Part of the records whose class is predicted: [n] and [n], numbers of classes."""
    _assert_paired("accuracy", predicted, labels)
    return float(np.mean(predicted == labels))


def recall(predicted: Numbers, labels: Numbers, of: int = 1) -> float:
    """Part of the records of class ``of`` that are predicted as it (sensitivity).

    Raises:
        MeasureUndefined: the class is absent.
    """
    _assert_paired("recall", predicted, labels)
    there = labels == of
    if not there.any():
        raise MeasureUndefined(f"recall: expected records of class {of}, got none")
    return float(np.mean(predicted[there] == of))


def precision(predicted: Numbers, labels: Numbers, of: int = 1) -> float:
    """Part of the records predicted as class ``of`` that are of it.

    Raises:
        MeasureUndefined: nothing is predicted as it.
    """
    _assert_paired("precision", predicted, labels)
    called = predicted == of
    if not called.any():
        raise MeasureUndefined(f"precision: expected records predicted as class {of}, got none")
    return float(np.mean(labels[called] == of))


def f1(predicted: Numbers, labels: Numbers, of: int = 1) -> float:
    """2·TP / (2·TP + FP + FN), of class ``of``.

    Raises:
        MeasureUndefined: no record is of the class or predicted as it.
    """
    _assert_paired("F1", predicted, labels)
    both = int(((predicted == of) & (labels == of)).sum())
    either = int((predicted == of).sum()) + int((labels == of).sum())
    if either == 0:
        raise MeasureUndefined(f"F1: expected records of class {of}, or predicted as it, got none")
    return 2 * both / either


def macro_f1(predicted: Numbers, labels: Numbers) -> float:
    """The mean F1 of the classes that occur in ``labels`` or ``predicted``."""
    _assert_paired("F1", predicted, labels)
    return float(np.mean([f1(predicted, labels, int(one)) for one in np.union1d(predicted, labels)]))


def at_threshold(probabilities: Numbers, threshold: float) -> NDArray[np.intp]:
    """Class 1 where the probability reaches ``threshold``, else 0: what ``recall`` and ``f1`` are given."""
    return (probabilities >= threshold).astype(np.intp)


def dice(predicted: Numbers, masks: Numbers) -> NDArray[np.float64]:
    """Each record's 2·|P ∩ Y| / (|P| + |Y|), float64[n] of [n, pixels] in {0, 1}; 1 where both are empty."""
    if predicted.shape != masks.shape or predicted.ndim != 2:
        raise MeasureUndefined(
            f"Dice: expected masks [n, pixels] twice, got {predicted.shape} and {masks.shape}"
        )
    p, y = predicted > 0.5, masks > 0.5
    both, either = (p & y).sum(1), p.sum(1) + y.sum(1)
    return np.where(either == 0, 1.0, 2.0 * both / np.maximum(either, 1))


def rmse(predicted: Numbers, truth: Numbers) -> float:
    """√ of the mean squared error, in the label's unit."""
    _assert_paired("RMSE", predicted, truth)
    return float(np.sqrt(np.mean(np.square(predicted.astype(np.float64) - truth.astype(np.float64)))))


def mae(predicted: Numbers, truth: Numbers) -> float:
    """Mean absolute error, in the label's unit."""
    _assert_paired("MAE", predicted, truth)
    return float(np.mean(np.abs(predicted.astype(np.float64) - truth.astype(np.float64))))


def concordance(risks: Numbers, times: Numbers, events: Numbers, strata: Numbers | None = None) -> float:
    """Harrell's C: among comparable pairs, the part in which who had the event first had the higher risk.

    A pair is comparable if the earlier of both times is an event; at equal times, if one is an event and the
    other is censored, who outlived it. Equal risks count half.

    Args:
        risks, times: [n]. events: [n], 1 for an event and 0 for censoring.
        strata: [n]; pairs are compared within a stratum only.

    Raises:
        MeasureUndefined: no pair is comparable.
    """
    _assert_paired("concordance", risks, times)
    _assert_paired("concordance", risks, events)
    concordant = comparable = 0.0
    happened = events > 0.5
    for one in np.flatnonzero(happened):
        later = (times > times[one]) | ((times == times[one]) & ~happened)
        if strata is not None:
            later &= strata == strata[one]
        below, tied = risks[later] < risks[one], risks[later] == risks[one]
        concordant += float(below.sum()) + 0.5 * float(tied.sum())
        comparable += float(later.sum())
    if comparable == 0:
        raise MeasureUndefined("concordance: expected an event that somebody outlived, got no such pair")
    return concordant / comparable


def calibration_error(probabilities: Numbers, labels: Numbers, bins: int = 10) -> float:
    """Σ over equally wide bins of |Σ label − Σ probability| / n (expected calibration error)."""
    _assert_paired("calibration", probabilities, labels)
    index = np.minimum((probabilities * bins).astype(np.intp), bins - 1)
    gaps = np.bincount(index, labels.astype(np.float64) - probabilities.astype(np.float64), minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def _assert_paired(name: str, one: Numbers, other: Numbers) -> None:
    if one.shape != other.shape or one.ndim != 1 or not len(one):
        raise MeasureUndefined(
            f"{name}: expected two vectors of one length, not empty, got {one.shape} and {other.shape}"
        )
