"""Sums of records' answers to a request for metrics, block by block, from a model's scores. Draws no noise.

Each metric carries its own counts, so that a block can be read by itself. A record whose score is NaN or
infinite adds nothing at all; every other one keeps the bound of each block (``privacy.query_blocks``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privacy.query_outcomes import OUTCOMES
from privacy.query_terms import (
    AccuracyMetric,
    AucMetric,
    CalibrationMetric,
    ConfusionMetric,
    EvaluationTerms,
    Metric,
    SiloAccuracyMetric,
)
from silo_agent.data.records import Records
from silo_agent.queries.outcomes import outcome_sums
from silo_agent.queries.skews import silo_accuracy
from silo_agent.queries.units import counted, shares_of

Vector = NDArray[np.float64]


def metric_sums(terms: EvaluationTerms, records: Records, scores: NDArray[np.float64]) -> list[Vector]:
    """One flat float64 vector a metric, in the order asked, not yet multiplied by its factor.

    Args:
        scores: float64[n, outputs]: one logit, or one for each class.
    """
    return [
        outcome_sums(metric, records, scores)
        if isinstance(metric, OUTCOMES)
        else _scored(records, scores).sum(metric)
        for metric in terms.metrics
    ]


def _scored(records: Records, scores: NDArray[np.float64]) -> _Scored:
    known = np.isfinite(scores).all(axis=1) & (records.labels >= 0) & (records.labels < records.classes)
    return _Scored(
        scores=scores[known],
        labels=records.labels[known].astype(np.intp),
        shares=shares_of(records)[known],
        classes=records.classes,
    )


class _Scored:
    """Records with finite scores; ``shares`` is what each of them counts."""

    def __init__(
        self, scores: NDArray[np.float64], labels: NDArray[np.intp], shares: Vector, classes: int
    ) -> None:
        self._scores, self._labels, self._shares, self._classes = scores, labels, shares, classes

    def sum(self, metric: Metric) -> Vector:
        """Σ over records of share · block."""
        if isinstance(metric, AccuracyMetric):
            wrong = (self._predicted(metric.threshold) != self._labels).astype(np.intp)
            return counted(wrong, self._shares, 2)
        if isinstance(metric, SiloAccuracyMetric):
            return silo_accuracy(metric, self._predicted(0.5) == self._labels, self._shares)
        if isinstance(metric, ConfusionMetric):
            cell = self._labels * self._classes + self._predicted(metric.threshold)
            return counted(cell, self._shares, self._classes**2)
        if isinstance(metric, AucMetric):
            return self._histograms(metric)
        if isinstance(metric, CalibrationMetric):
            return self._reliability(metric)
        raise TypeError(f"{metric.kind}: expected a metric of classes")

    def _predicted(self, threshold: float) -> NDArray[np.intp]:
        if self._classes == 2:
            above: NDArray[np.bool_] = expit(self._scores[:, 0]) >= threshold
            return above.astype(np.intp)
        likeliest: NDArray[np.intp] = np.argmax(self._scores, axis=1)
        return likeliest

    def _histograms(self, metric: AucMetric) -> Vector:
        cuts = np.linspace(-metric.reach, metric.reach, metric.bins + 1)[1:-1]
        index = np.searchsorted(cuts, self._scores[:, 0], side="right")
        return counted(self._labels * metric.bins + index, self._shares, 2 * metric.bins)

    def _reliability(self, metric: CalibrationMetric) -> Vector:
        chance = expit(self._scores[:, 0])
        index = np.minimum((chance * metric.bins).astype(np.intp), metric.bins - 1)
        columns = (self._shares, self._shares * self._labels, self._shares * chance)
        return np.stack([counted(index, one, metric.bins) for one in columns], axis=1).ravel()
