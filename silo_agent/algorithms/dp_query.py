"""``dp_statistics`` and ``dp_evaluation``: one Gaussian mechanism on the sum of all patients' answers.

Each patient adds one vector of norm at most C, cut into blocks (``privacy.query_blocks``). As in
``dp_fedsgd``, sum and noise are rounded apart, onto the plan's grid, and noise may be shared among silos.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from privacy.dp.integer_noise import clamped, integer_mechanism
from privacy.errors import SealsumError
from privacy.query_blocks import blocks_of, factors_of
from privacy.query_terms import EvaluationTerms, StatisticsTerms
from silo_agent.algorithms.task import Task
from silo_agent.models.adapters import build_model
from silo_agent.queries.metrics import metric_sums
from silo_agent.queries.question import Question
from silo_agent.queries.scores import scores_of
from silo_agent.queries.statistics import statistics_sums
from silo_agent.randomness import gaussian
from silo_agent.update import GridUpdate


def dp_statistics(task: Task) -> GridUpdate:
    """round(s·Σ answers) + round(s·N(0, σ_k²C²)): float64[d] of integers.

    Raises:
        Stopped: the agent was told to end.
    """
    task.refuse_if_stopping()
    question = _question(task)
    if not isinstance(question.terms, StatisticsTerms):
        raise SealsumError("query: expected statistics")
    return _noised(task, statistics_sums(question.terms, question.data, task.records))


def dp_evaluation(task: Task) -> GridUpdate:
    """The same, of the metrics of the model that the query names.

    Raises:
        ConfigurationError: the model does not fit the label. Stopped: the agent was told to end.
    """
    torch.set_num_threads(task.workbench.threads)
    task.refuse_if_stopping()
    question = _question(task)
    if not isinstance(question.terms, EvaluationTerms) or question.weights is None or task.adapter is None:
        raise SealsumError("query: expected an evaluation, its model and an adapter")
    module = build_model(task.adapter, question.terms.model, question.weights)
    return _noised(task, metric_sums(question.terms, task.records, scores_of(module, task.records)))


def _question(task: Task) -> Question:
    if task.question is None:
        raise SealsumError("query: expected a plan with one")
    return task.question


def _noised(task: Task, sums: list[NDArray[np.float64]]) -> GridUpdate:
    question = _question(task)
    mechanism = integer_mechanism(task.privacy, task.training, task.vector, task.model.parameters)
    blocks = blocks_of(question.terms, question.data)
    factors = [factor for _, factor in factors_of(blocks, task.privacy, task.training, task.vector)]
    answers = np.concatenate([factor * one for factor, one in zip(factors, sums, strict=True)])
    signal = clamped(np.rint(mechanism.steps_per_unit * answers), mechanism, task.vector)
    noise = np.rint(gaussian(task.model.parameters, mechanism.deviation))
    return GridUpdate(signal + noise)
