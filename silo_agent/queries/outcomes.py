"""Sums of records' answers about losses, numbers, masks and survival times (``privacy.query_outcomes``).

A record with scores or a label that are not finite, or a label of another kind, adds nothing. Draws no noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from privacy.measures import dice
from privacy.query_outcomes import Outcome
from privacy.query_terms import ConcordanceMetric, DiceMetric, ErrorMetric, LossMetric
from silo_agent.data.records import Records
from silo_agent.engines.loss import record_losses
from silo_agent.queries.units import counted, shares_of

Vector = NDArray[np.float64]


def outcome_sums(asked: Outcome, records: Records, scores: Vector) -> Vector:
    """Σ over records of share · block: flat float64, not yet multiplied by its factor.

    Args:
        scores: float64[n, outputs].
    """
    labels = records.labels.reshape(len(records), math.prod(records.labels.shape[1:])).astype(np.float64)
    known = np.isfinite(scores).all(axis=1) & _is_a_label(records, labels)
    scores, labels, shares = scores[known], labels[known], shares_of(records)[known]
    if isinstance(asked, LossMetric):
        return _mean(shares, _within(_losses(records, scores, labels), asked.cap))
    if isinstance(asked, DiceMetric):
        return _mean(shares, _dice(scores, labels, asked.threshold))
    if isinstance(asked, ErrorMetric):
        # Labels span [−1, 1]: an error of the whole range is 2.
        error = _within(np.abs(scores[:, 0] - labels[:, 0]), 2.0 * asked.cap)
        return np.array([shares.sum(), shares @ error, shares @ np.square(error)])
    return _survival(asked, scores[:, 0], labels, shares)


def _is_a_label(records: Records, labels: Vector) -> Any:
    """bool[n]."""
    finite = np.isfinite(labels).all(axis=1)
    if records.kind == "classes":
        return finite & np.isin(labels[:, 0], np.arange(records.classes))
    if records.kind == "mask":
        return finite & np.isin(labels, (0.0, 1.0)).all(axis=1)
    if records.kind in ("cox", "exponential"):
        times, events = labels[:, 0], labels[:, 1]
        return finite & (times >= 0) & (times <= 1) & np.isin(events, (0.0, 1.0))
    return finite


def _losses(records: Records, scores: Vector, labels: Vector) -> Vector:
    told = torch.from_numpy(labels if records.kind in ("mask", "exponential") else labels[:, 0])
    losses: Vector = record_losses(torch.from_numpy(scores), told, records.kind, records.classes).numpy()
    return losses


def _dice(scores: Vector, labels: Vector, threshold: float) -> Vector:
    return dice(expit(scores) >= threshold, labels)


def _mean(shares: Vector, values: Vector) -> Vector:
    return np.array([shares.sum(), shares @ values])


def _within(values: Vector, cap: float) -> Vector:
    """values / cap in [0, 1]; what is beyond counts as the nearer end, and NaN as 1."""
    # Clipped before the division: a score may be as large as float64 has numbers, and its quotient larger.
    return np.maximum(np.where(values < cap, values, cap), 0.0) / cap


def _survival(asked: ConcordanceMetric, hazards: Vector, labels: Vector, shares: Vector) -> Vector:
    cuts = np.linspace(-asked.reach, asked.reach, asked.bins + 1)[1:-1]
    hazard = np.searchsorted(cuts, hazards, side="right")
    time = np.minimum((labels[:, 0] * asked.time_bins).astype(np.intp), asked.time_bins)
    cell = (labels[:, 1].astype(np.intp) * (asked.time_bins + 1) + time) * asked.bins + hazard
    return counted(cell, shares, 2 * (asked.time_bins + 1) * asked.bins)
