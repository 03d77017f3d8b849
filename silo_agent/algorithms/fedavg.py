"""``fedavg``: gradient descent on the mean loss of all records, for plans admitted without DP."""

from __future__ import annotations

import numpy as np
import torch

from silo_agent.algorithms.descent import descend
from silo_agent.algorithms.task import Task
from silo_agent.engines.loss import mean_loss
from silo_agent.models.adapters import export_vector
from silo_agent.update import FloatUpdate


def fedavg(task: Task) -> FloatUpdate:
    """``local_steps`` full-batch steps (McMahan et al. 2017 with B = ∞); end minus start.

    Raises:
        Stopped: the agent was told to end, between two steps.
    """
    torch.set_num_threads(1)
    module, everything = task.module(), np.arange(len(task.records))
    for _ in range(task.training.local_steps):
        task.refuse_if_stopping()
        module.zero_grad()
        torch.autograd.backward(mean_loss(module, task.records, everything))
        gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.double().flatten() for gradient in gradients]).numpy()
        descend(module, flat, task.training.learning_rate)
    return FloatUpdate(export_vector(task.model, module) - task.start)
