"""``per_fedavg``: train a model to be good one step later (Fallah et al. 2020, arXiv 2002.07948).

Each step draws two batches of the silo's records: along the first a trial step is taken, and the gradient of
the second, where that has led, moves the model (first order: second derivatives are left out).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from privacy.errors import SealsumError, Unprocessable
from silo_agent.algorithms.descent import descend
from silo_agent.algorithms.local_steps import mean_gradient
from silo_agent.algorithms.task import Task
from silo_agent.models.adapters import export_vector, load_vector
from silo_agent.randomness import uniforms
from silo_agent.update import FloatUpdate


def per_fedavg(task: Task) -> FloatUpdate:
    """End minus start of ``local_steps`` steps, float32[d].

    Raises:
        Unprocessable: fewer than two records. Diverged: a loss or gradient is not finite. Stopped: between
            two steps.
    """
    torch.set_num_threads(task.workbench.threads)
    personal, training = task.training.personal, task.training
    if personal is None or personal.learning_rate is None:
        raise SealsumError("personal: expected terms of per_fedavg")
    if len(task.records) < 2:
        raise Unprocessable("per_fedavg: expected two records or more, for two batches")
    module = task.module()
    for _ in range(training.local_steps):
        task.refuse_if_stopping()
        here = export_vector(task.model, module)
        trial, judged = _halves(len(task.records))
        descend(module, mean_gradient(module, task, trial)[1], personal.learning_rate)
        gradient = clipped(mean_gradient(module, task, judged)[1], training.local.gradient_clip)
        load_vector(module, task.model, here)
        descend(module, gradient, training.learning_rate)
    return FloatUpdate(export_vector(task.model, module) - task.start)


def clipped(gradient: NDArray[np.float64], clip: float | None) -> NDArray[np.float64]:
    """Scaled down to the length ``clip`` where it is longer."""
    norm = float(np.linalg.norm(gradient))
    return gradient if clip is None or norm <= clip else gradient * (clip / norm)


def _halves(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Two disjoint batches, drawn by the system's randomness, ascending."""
    order = np.argsort(uniforms(count))
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])
