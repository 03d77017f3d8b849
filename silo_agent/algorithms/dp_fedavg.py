"""``dp_fedavg``: local DP-SGD (Abadi et al. 2016, Algorithm 1), several steps a round.

Each step is the mechanism that the ledger charged: a secret Poisson sample, gradients clipped record by
record, N(0, (σC)²) added to their sum, a public constant as divisor. No second optimiser, regulariser,
momentum or batch statistic touches the weights. Knows no ledger and no network.
"""

from __future__ import annotations

import torch

from silo_agent.algorithms.descent import descend
from silo_agent.algorithms.task import Task
from silo_agent.engines.engine import private_sum
from silo_agent.models.adapters import export_vector
from silo_agent.randomness import gaussian, poisson_sample
from silo_agent.update import FloatUpdate


def dp_fedavg(task: Task) -> FloatUpdate:
    """``local_steps`` private steps; end minus start.

    Raises:
        ConfigurationError: the model cannot be trained privately. Stopped: between two steps.
    """
    torch.set_num_threads(1)
    dp, training = task.privacy, task.training
    engine = task.engine()
    for _ in range(training.local_steps):
        task.refuse_if_stopping()
        sample = poisson_sample(task.records.unit_count, dp.sample_rate)
        # An empty sample is a step like any other: noise is added and the step is taken.
        total = private_sum(engine, task.records, sample, dp.clip_l2)
        total += gaussian(len(total), dp.noise_multiplier * dp.clip_l2)
        # Dividing by what was sampled, or held, would reveal it.
        descend(engine.module, total / dp.normaliser, training.learning_rate)
    return FloatUpdate(export_vector(task.model, engine.module) - task.start)
