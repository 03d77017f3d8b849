"""From the opened vector of answers to the numbers that were asked for, each with its standard error.

Pure: takes what was signed and what was opened. The error follows from the job's public terms and from how
many silos' noise is in the sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.dp.accountant import epsilon
from privacy.dp.events import round_event
from privacy.dp.integer_noise import integer_mechanism
from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from privacy.query_blocks import Asked, blocks_of, factors_of
from privacy.query_terms import SKEWS, EvaluationTerms, SiloAccuracyMetric, StatisticsTerms
from sealsum.queries.metrics import read_metric
from sealsum.queries.skews import read_silo_accuracy, read_skew
from sealsum.queries.statistics import read_statistic


def noise_deviation(job: JobSpec, survivors: int) -> float:
    """Standard deviation of each coordinate of the opened vector: the noise of so many silos, and rounding.

    Raises:
        ConfigurationError: the job has no noise.
    """
    if job.dp is None:
        raise ConfigurationError(f"job {job.job}: expected a query, which has dp terms")
    mechanism = integer_mechanism(job.dp, job.training, job.vector, job.model.parameters)
    # Each silo rounds its sum and its noise to whole steps: a twelfth of a step² each.
    steps = math.sqrt(survivors * (mechanism.deviation**2 + 2 / 12))
    return steps / mechanism.steps_per_unit


def read_answer(job: JobSpec, opened: NDArray[np.float32], survivors: int) -> dict[str, Any]:
    """The whole answer for JSON.

    Args:
        opened: float32[d], as the aggregator published it.
        survivors: silos in the sum.

    Raises:
        ConfigurationError: the job is no query. Unprocessable: its query does not fit its schema.
    """
    if job.query is None or job.dp is None:
        raise ConfigurationError(f"job {job.job}: expected a query, got {job.training.algorithm}")
    deviation = noise_deviation(job, survivors)
    blocks = blocks_of(job.query, job.data)
    answers = []
    for block, factor in factors_of(blocks, job.dp, job.training, job.vector):
        values = opened[block.coordinates].astype(np.float64).reshape(block.spec.shape) / factor
        answers.append(_read(job, block.asked, values, deviation / factor, survivors))
    report: dict[str, Any] = {
        "job": job.job,
        "query": job.query.kind,
        "dataset": job.dataset,
        "silos": survivors,
        "privacy": {
            "unit": job.dp.unit,
            "epsilon": float(f"{epsilon([round_event(job.dp, job.training)], job.dp.delta):.6g}"),
            "delta": job.dp.delta,
            "noise": job.dp.model,
            "noise_multiplier": job.dp.noise_multiplier,
        },
    }
    if isinstance(job.query, EvaluationTerms):
        report["model"] = job.query.weights
    return report | {"statistics" if isinstance(job.query, StatisticsTerms) else "metrics": answers}


def _read(
    job: JobSpec, asked: Asked, values: NDArray[np.float64], error: float, survivors: int
) -> dict[str, Any]:
    if isinstance(asked, SKEWS):
        return read_skew(asked, job.data, values, error, survivors)
    if isinstance(asked, SiloAccuracyMetric):
        return read_silo_accuracy(asked, values, error, survivors)
    read = read_statistic if isinstance(job.query, StatisticsTerms) else read_metric
    return read(asked, job.data, values, error)
