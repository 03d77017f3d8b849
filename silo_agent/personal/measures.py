"""How well models do on patients they were not fitted to, with intervals, and by how much one beats another.

Intervals are percentiles of the bootstrap over patients (Efron, Tibshirani 1993, chapter 13); a difference is
taken on the same patients in each draw. The draws' seed is fixed: it reaches figures only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.loss import losses
from silo_agent.personal.figures import Figure
from silo_agent.personal.workplace import Vector, Workplace

DRAWS: Final = 2000
INTERVAL: Final = (2.5, 97.5)
_SEED: Final = 20110
_HUGE: Final = 1e6
"""In the place of a loss that is not finite: no model of it is ever chosen."""
HIGHER_IS_BETTER: Final[Mapping[str, bool]] = {"accuracy": True, "auc": True, "loss": False}


@dataclass(frozen=True)
class Outcome:
    """What a model said of each record: its loss, a score, and whether it was right."""

    loss: NDArray[np.float64] = field(repr=False)
    right: NDArray[np.float64] | None = field(repr=False)
    """Whether its class was; none where no class is predicted."""
    score: NDArray[np.float64] | None = field(repr=False)
    """Of the second of two classes; none where there are more."""


def losses_of(place: Workplace, vector: Vector, asked: Records) -> NDArray[np.float64]:
    """Of a model, float32[d], on each record; batch statistics are the place's; not finite is huge."""
    with torch.no_grad():
        loss = losses(place.scored(vector), asked, np.arange(len(asked))).double().numpy()
    return np.where(np.isfinite(loss), np.minimum(loss, _HUGE), _HUGE)


def outcome_of(module: nn.Module, records: Records) -> Outcome:
    """What a model in evaluation mode says of each record.

    Raises:
        ConfigurationError: no record has a loss by itself: Cox.
    """
    dtype = next(module.parameters()).dtype
    if records.kind == "cox":
        raise ConfigurationError(
            "personalise: expected records that each have a loss, got a Cox model, whose likelihood is of "
            "all of them together; train with loss: exponential to compare models by patient"
        )
    with torch.no_grad():
        loss = losses(module, records, np.arange(len(records))).double().numpy()
        logits = module(torch.from_numpy(records.features).to(dtype)).double().numpy()
    if records.kind != "classes":
        return Outcome(loss, None, None)
    if records.classes == 2:
        score = logits.reshape(-1)
        return Outcome(loss, ((score > 0) == (records.labels > 0)).astype(np.float64), score)
    return Outcome(loss, (logits.argmax(axis=1) == records.labels).astype(np.float64), None)


class Board:
    """Held-out records, and what each model said of them."""

    def __init__(self, records: Records, outcomes: Mapping[str, Outcome]) -> None:
        """Draw the patients of every resample once, so that all models are compared on the same ones."""
        self._outcomes = outcomes
        classed = records.kind == "classes"
        self._labels = records.labels > 0 if classed else np.zeros(len(records), dtype=np.bool_)
        _, self._owner = np.unique(np.array(records.patients), return_inverse=True)
        patients = int(self._owner.max(initial=-1)) + 1
        drawn = np.random.default_rng(_SEED).integers(0, max(patients, 1), (DRAWS, patients))
        times = np.zeros((DRAWS, patients))
        np.add.at(times, (np.arange(DRAWS)[:, None], drawn), 1.0)
        self._weights = times[:, self._owner]
        """How often each record is in each resample, float64[draws, n]."""
        both = records.classes == 2 and 0 < int(self._labels.sum()) < len(self._labels)
        self.metrics = (*(("accuracy",) if classed else ()), "loss", *(("auc",) if both else ()))
        """Those that exist here: a loss has every record, accuracy is of classes, AUC needs both of two."""

    def figure(self, model: str, metric: str) -> Figure:
        """One model by one metric."""
        return _figure(*self._measured(model, metric))

    def difference(self, model: str, other: str, metric: str) -> Figure:
        """By how much ``model`` is better than ``other``, on the same patients; above 0 is better."""
        sign = 1.0 if HIGHER_IS_BETTER[metric] else -1.0
        (value, draws), (base, base_draws) = self._measured(model, metric), self._measured(other, metric)
        return _figure(sign * (value - base), sign * (draws - base_draws))

    def _measured(self, model: str, metric: str) -> tuple[float, NDArray[np.float64]]:
        measure = _MEASURES[metric]
        one = np.ones((1, len(self._labels)))
        outcome = self._outcomes[model]
        value = float(measure(outcome, self._labels, one)[0])
        return value, measure(outcome, self._labels, self._weights)


def _figure(value: float, draws: NDArray[np.float64]) -> Figure:
    known = draws[np.isfinite(draws)]
    low, high = np.percentile(known, INTERVAL) if len(known) else (value, value)
    return Figure(value=value, low=float(low), high=float(high))


def _weighted(values: NDArray[np.float64] | None, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    if values is None:
        return np.full(len(weights), np.nan)
    mean: NDArray[np.float64] = weights @ values / weights.sum(axis=1)
    return mean


def _auc(outcome: Outcome, sick: NDArray[np.bool_], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The chance that a sick patient scores above a healthy one, ties half; NaN where a draw lacks either."""
    if outcome.score is None:
        return np.full(len(weights), np.nan)
    score = outcome.score
    above = (score[sick][:, None] > score[~sick]) + 0.5 * (score[sick][:, None] == score[~sick])
    pairs = np.einsum("ds,sh,dh->d", weights[:, sick], above, weights[:, ~sick], optimize=True)
    possible = weights[:, sick].sum(axis=1) * weights[:, ~sick].sum(axis=1)
    chance: NDArray[np.float64] = np.full(len(weights), np.nan)
    np.divide(pairs, possible, out=chance, where=possible > 0)
    return chance


_MEASURES: Final[
    Mapping[str, Callable[[Outcome, NDArray[np.bool_], NDArray[np.float64]], NDArray[np.float64]]]
] = {
    "accuracy": lambda outcome, _, weights: _weighted(outcome.right, weights),
    "loss": lambda outcome, _, weights: _weighted(outcome.loss, weights),
    "auc": _auc,
}
