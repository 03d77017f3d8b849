"""The vector ``metrics`` beside a step's gradient: how the model that came does on the step's own sample.

Each sampled unit adds a vector of bounded norm, and the sum is noised as the gradient is, on the grid
(``privacy.dp.metrics``). The sample is the gradient's: another one would have to be charged for itself.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privacy.dp.integer_noise import clamped
from privacy.dp.metrics import metrics_mechanism
from privacy.errors import SealsumError
from privacy.plan import VectorTerms
from privacy.query_blocks import SUM_MARGIN
from privacy.vector_terms import METRICS, MetricTerms
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.engines.loss import record_losses
from silo_agent.queries.scores import scores_of
from silo_agent.randomness import gaussian
from silo_agent.update import GridUpdate


def noisy_metrics(task: Task, sample: NDArray[np.intp]) -> GridUpdate:
    """clamp(round(s·Σ m)) + round(s·N(0, σ₂²/h)): float64[k] of integers.

    Args:
        sample: units of the task's records, ascending: those of the gradient.

    Raises:
        SealsumError: the plan asks for no metrics, or carries no vector for them: a bug.
    """
    terms, vector = task.privacy.metrics, _vector(task)
    if terms is None:
        raise SealsumError("metrics: expected a plan with dp.metrics")
    mechanism = metrics_mechanism(task.privacy, terms, vector)
    total = unit_metrics(task.module().eval(), task.records, sample, terms).sum(axis=0)
    unit = SUM_MARGIN * mechanism.clip / math.sqrt(terms.coordinates)
    signal = clamped(np.rint(mechanism.steps_per_unit * unit * total), mechanism, vector)
    return GridUpdate(signal + np.rint(gaussian(terms.coordinates, mechanism.deviation)))


def unit_metrics(
    module: nn.Module, records: Records, sample: NDArray[np.intp], terms: MetricTerms
) -> NDArray[np.float64]:
    """Each sampled unit's metrics in [0, 1], by name, and 1: float64[units, k], in no order of units.

    A unit of several records counts once, by the means of its records. A loss that is NaN or infinite is the
    cap: a unit stays within its bound whatever its records and the model are.
    """
    names = len(terms.names)
    blocks = [
        _record_metrics(module, records, rows.reshape(-1), terms).reshape(*rows.shape, names).mean(axis=1)
        for rows in records.in_equal_shares(sample)
    ]
    means = np.concatenate([np.empty((0, names)), *blocks])
    return np.column_stack([means, np.ones(len(means))])


def _record_metrics(
    module: nn.Module, records: Records, rows: NDArray[np.intp], terms: MetricTerms
) -> NDArray[np.float64]:
    """From scores of one record at a time: see ``scores_of``."""
    logits = torch.from_numpy(scores_of(module, records, rows))
    labels = torch.from_numpy(records.labels[rows]).double()
    columns = []
    for name in terms.names:
        if name == "loss":
            loss = record_losses(logits, labels, records.kind, records.classes).numpy()
            cap = terms.loss_cap or 1.0
            # Written so that NaN becomes the cap; a log-likelihood may lie beyond 0, and counts as 0 then.
            columns.append(np.maximum(np.where(loss < cap, loss, cap), 0.0) / cap)
        else:
            columns.append(_right(logits, labels, records).double().numpy())
    return np.column_stack(columns)


def _right(logits: torch.Tensor, labels: torch.Tensor, records: Records) -> torch.Tensor:
    """Whether each record's class is told, bool[rows]."""
    if records.kind != "classes":
        raise SealsumError(f"metrics: expected no accuracy of {records.told}")
    if records.classes == 2:
        return (logits[:, 0] > 0) == (labels > 0)
    return logits.argmax(dim=-1) == labels.long()


def _vector(task: Task) -> VectorTerms:
    for vector in task.further:
        if vector.name == METRICS:
            return vector.terms
    raise SealsumError(f"metrics: expected a plan with a vector {METRICS}")
