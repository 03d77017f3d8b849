"""``dp_fedavg``: local DP-SGD (Abadi et al. 2016, Algorithm 1), several steps a round.

Each step is the mechanism that the ledger charged: a secret Poisson sample, gradients clipped record by
record, N(0, (σC)²) added to their sum, a public constant as divisor. No second optimiser, regulariser,
momentum or batch statistic touches the weights before the noise does. What the plan's terms add after it
(FedProx's pull, SCAFFOLD's correction, a projection) reads noised steps and public models alone:
post-processing, free of charge (Dwork, Roth 2014, Proposition 2.1). A proximal term inside the loss would
be clipped with each record's gradient and is refused. Knows no ledger and no network.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from silo_agent.algorithms.control import correction_of, to_settle
from silo_agent.algorithms.descent import descend
from silo_agent.algorithms.local_steps import pull
from silo_agent.algorithms.on_grid import on_grid
from silo_agent.algorithms.own_weights import BEFORE, last_global_update, projected, within
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
    torch.set_num_threads(task.workbench.threads)
    dp, training = task.privacy, task.training
    engine = task.engine()
    correction = correction_of(task)
    for _ in range(training.local_steps):
        task.refuse_if_stopping()
        sample = poisson_sample(task.records.unit_count, dp.sample_rate)
        # An empty sample is a step like any other: noise is added and the step is taken.
        total = private_sum(engine, task.records, sample, dp.clip_l2)
        total += gaussian(len(total), dp.noise_multiplier * dp.clip_l2)
        # Dividing by what was sampled, or held, would reveal it.
        step = task.moving(total / dp.normaliser)
        descend(engine.module, step if correction is None else step + correction, training.learning_rate)
        if training.local.proximal_mu > 0:
            pull(engine.module, task.start, training.learning_rate * training.local.proximal_mu)
    update = export_vector(task.model, engine.module) - task.start
    keep: dict[str, NDArray[np.float32]] = {}
    if training.local.projection:
        update = projected(update, last_global_update(task))
        keep[BEFORE] = task.start
    update = within(update, training.local.coordinate_clip)
    if training.local.control != "none":
        update = on_grid(update, task.vector)
        keep |= to_settle(task, correction, update, {})
    return FloatUpdate(update, keep=keep)
