"""``dp_fedsgd``: one private step of all silos together; each adds its share of the noise, or all of it.

The opened sum is what central DP-SGD over all silos' records would show, whatever the split. Signal and noise
are rounded apart, onto the plan's grid: the guarantee is one of integers (``privacy.dp.integer_noise``).
"""

from __future__ import annotations

import numpy as np
import torch

from privacy.dp.integer_noise import clamped, integer_mechanism, shortened
from privacy.secagg.vectors import VectorName
from privacy.vector_terms import METRICS
from silo_agent.algorithms.metrics import noisy_metrics
from silo_agent.algorithms.task import Task
from silo_agent.engines.engine import private_sum
from silo_agent.randomness import gaussian, poisson_sample
from silo_agent.update import GridUpdate


def dp_fedsgd(task: Task) -> GridUpdate:
    """clamp(round(−s·Σ clip(g))) + round(s·N(0, σ_k²C²)): float64[d] of integers; metrics if asked.

    Raises:
        ConfigurationError: the model cannot be trained privately. Stopped: before the step.
    """
    torch.set_num_threads(task.workbench.threads)
    task.refuse_if_stopping()
    mechanism = integer_mechanism(task.privacy, task.training, task.vector, task.model.parameters)
    sample = poisson_sample(task.records.unit_count, task.privacy.sample_rate)
    clipped = private_sum(task.engine(), task.records, sample, mechanism.clip)
    exact = -mechanism.steps_per_unit * clipped
    if task.norm_bound is not None:
        exact = shortened(exact, mechanism, task.vector, task.norm_bound)
    signal = clamped(np.rint(exact), mechanism, task.vector)
    noise = np.rint(gaussian(task.model.parameters, mechanism.deviation))
    further = {} if task.privacy.metrics is None else {VectorName(METRICS): noisy_metrics(task, sample)}
    return GridUpdate(signal + noise, further)
