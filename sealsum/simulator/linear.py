"""Linear models in closed form: the same updates as the agent's algorithms, many times faster, for sweeps.

A record's gradient is (p − y) ⊗ [x, 1], so its norm is ‖p − y‖ · ‖[x, 1]‖ and no gradient is ever formed
(Goodfellow 2015, arXiv 1510.01799). Sampling and noise are the agent's. A test holds each against its model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from privacy.dp.integer_noise import integer_mechanism
from privacy.errors import ConfigurationError
from privacy.plan import AlgorithmName, LocalTerms
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.randomness import gaussian, poisson_sample
from silo_agent.update import FloatUpdate, GridUpdate, Update

_ROWS = 512
"""Records whose features are in memory twice, and fit a processor's cache."""


def dp_fedsgd(task: Task) -> GridUpdate:
    """As ``silo_agent.algorithms.dp_fedsgd``."""
    mechanism = integer_mechanism(task.privacy, task.training, task.vector, task.model.parameters)
    sample = poisson_sample(len(task.records), task.privacy.sample_rate)
    clipped = clipped_sum(_checked(task), task.start, sample, mechanism.clip)
    noise = np.rint(gaussian(task.model.parameters, mechanism.deviation))
    return GridUpdate(np.rint(-mechanism.steps_per_unit * clipped) + noise)


def dp_fedavg(task: Task) -> FloatUpdate:
    """As ``silo_agent.algorithms.dp_fedavg``."""
    dp, training, records = task.privacy, task.training, _checked(task)
    weights = task.start
    for _ in range(training.local_steps):
        sample = poisson_sample(len(records), dp.sample_rate)
        total = clipped_sum(records, weights, sample, dp.clip_l2)
        total += gaussian(len(total), dp.noise_multiplier * dp.clip_l2)
        weights = _descended(weights, total / dp.normaliser, training.learning_rate)
    return FloatUpdate(weights - task.start)


def fedavg(task: Task) -> FloatUpdate:
    """As ``silo_agent.algorithms.fedavg``."""
    records, weights = _checked(task), task.start
    everything = np.arange(len(records))
    for _ in range(task.training.local_steps):
        total = clipped_sum(records, weights, everything, np.inf)
        weights = _descended(weights, total / len(records), task.training.learning_rate)
    return FloatUpdate(weights - task.start)


LINEAR_LOCAL: Final[Mapping[AlgorithmName, Callable[[Task], FloatUpdate]]] = MappingProxyType(
    {"fedavg": fedavg, "dp_fedavg": dp_fedavg}
)
LINEAR: Final[Mapping[AlgorithmName, Callable[[Task], Update]]] = MappingProxyType(
    {**LINEAR_LOCAL, "dp_fedsgd": dp_fedsgd}
)


def clipped_sum(
    records: Records, weights: NDArray[np.float32], sample: NDArray[np.intp], clip: float
) -> NDArray[np.float64]:
    """Σ over the sampled records of g · min(1, clip / ‖g‖₂), float64[d], as a ``StepEngine`` gives it.

    Args:
        weights: float32[d]: a matrix [logits, inputs], then a bias for each logit.
    """
    width = records.features.shape[1]
    matrix, bias = weights[: -records.logits].reshape(records.logits, width), weights[-records.logits :]
    slopes, offsets = np.zeros(matrix.shape), np.zeros(records.logits)
    for rows in _pieces(sample):
        features = records.features[rows]
        errors = _errors(features @ matrix.T + bias, records.labels[rows])
        norms = np.linalg.norm(errors, axis=1) * np.sqrt(np.einsum("ij,ij->i", features, features) + 1.0)
        errors *= np.minimum(1.0, clip / np.maximum(norms, np.finfo(np.float32).tiny))[:, None]
        slopes += errors.T.astype(np.float32) @ features
        offsets += errors.sum(0)
    return np.concatenate([slopes.ravel(), offsets])


def _errors(logits: NDArray[np.float32], labels: NDArray[np.float32]) -> NDArray[np.float64]:
    """p − y, float64[n, logits]."""
    if logits.shape[1] == 1:
        binary: NDArray[np.float64] = expit(logits.astype(np.float64)) - labels[:, None]
        return binary
    errors: NDArray[np.float64] = softmax(logits.astype(np.float64), axis=1)
    errors[np.arange(len(labels)), labels.astype(np.intp)] -= 1.0
    return errors


def _descended(
    weights: NDArray[np.float32], gradient: NDArray[np.float64], rate: float
) -> NDArray[np.float32]:
    return weights - np.float32(rate) * gradient.astype(np.float32)


def _pieces(sample: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(sample), _ROWS):
        yield sample[start : start + _ROWS]


def _checked(task: Task) -> Records:
    records = task.records
    if task.training.local != LocalTerms():
        raise ConfigurationError(
            "training.local: expected nothing for sweeps of linear models, which take plain steps; use the "
            "agent's own algorithms"
        )
    if task.model.adapter != "logistic" or records.unit_count != len(records):
        raise ConfigurationError(
            f"model.adapter: expected logistic, and one record a unit, got {task.model.adapter}"
        )
    if records.kind != "classes":
        raise ConfigurationError(
            f"data.label: expected classes for sweeps of linear models, got {records.told}"
        )
    if task.model.parameters != records.logits * (task.model.inputs + 1):
        raise ConfigurationError(f"model: expected {records.logits} outputs for {records.classes} classes")
    return records
