"""A silo's descent in a round without DP: gradient steps on the mean loss, as far as the plan's terms go.

A loss or gradient that is not finite, or a loss that has grown beyond reason, ends the round for this silo
by name (``Diverged``): what it would send is no update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from silo_agent.algorithms.descent import descend
from silo_agent.algorithms.task import Task
from silo_agent.engines.loss import mean_loss
from silo_agent.models.adapters import export_vector
from silo_agent.problems import Diverged
from silo_agent.randomness import uniforms

MOST_GROWTH: Final = 100.0
"""A round after which the loss exceeds so many times (1 + the loss before) has diverged."""


@dataclass(frozen=True)
class Descent:
    """Where the steps of one round have led."""

    update: NDArray[np.float32] = field(repr=False)
    """float32[d]: end minus start."""
    first_loss: float = field(repr=False)
    """Mean loss of the first step's records, before it."""
    last_loss: float = field(repr=False)
    """Mean loss of the last step's records, before it."""


def local_steps(task: Task, correction: NDArray[np.float32] | None = None) -> Descent:
    """``local_steps`` steps (McMahan et al. 2017), each along clip(gradient) + correction, then FedProx's
    pull.

    Args:
        correction: float32[d], added to each step's gradient after clipping.

    Raises:
        Stopped: the agent was told to end, between two steps. Diverged: see above.
    """
    torch.set_num_threads(task.workbench.threads)
    training, local = task.training, task.training.local
    module = task.module()
    batches = _batches(len(task.records), local.batch_size)
    losses: list[float] = []
    for _ in range(training.local_steps):
        task.refuse_if_stopping()
        loss, gradient = mean_gradient(module, task, next(batches))
        losses.append(loss)
        gradient = task.moving(gradient)
        if local.gradient_clip is not None:
            norm = float(np.linalg.norm(gradient))
            gradient *= min(1.0, local.gradient_clip / norm) if norm > 0 else 1.0
        if correction is not None:
            gradient += correction
        descend(module, gradient, training.learning_rate)
        if local.proximal_mu > 0:
            pull(module, task.start, training.learning_rate * local.proximal_mu)
    if losses[-1] > MOST_GROWTH * (1.0 + losses[0]):
        raise Diverged(
            f"training: the loss grew more than {MOST_GROWTH:g}-fold within a round; lower learning_rate"
        )
    update = export_vector(task.model, module) - task.start
    if not np.all(np.isfinite(update)):
        raise Diverged("training: a parameter left the finite range of float32; lower learning_rate")
    return Descent(update, losses[0], losses[-1])


def mean_gradient(module: nn.Module, task: Task, rows: NDArray[np.intp]) -> tuple[float, NDArray[np.float64]]:
    """Mean loss of the rows, and its gradient, float64[d].

    Raises:
        Diverged: one of them is not finite.
    """
    module.zero_grad()
    loss = mean_loss(module, task.records, rows)
    torch.autograd.backward(loss)
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    gradient: NDArray[np.float64] = torch.cat([one.double().flatten() for one in gradients]).numpy()
    value = float(loss.detach())
    if not (math.isfinite(value) and np.all(np.isfinite(gradient))):
        raise Diverged(
            "training: a loss or gradient is not finite; lower learning_rate, or look at the records"
        )
    return value, gradient


@torch.no_grad()
def pull(module: nn.Module, start: NDArray[np.float32], share: float) -> None:
    """w ← w − share · (w − x), x the round's model: reads no record, so under DP it is post-processing."""
    first = 0
    for parameter in module.parameters():
        piece = torch.from_numpy(start[first : first + parameter.numel()].copy()).reshape(parameter.shape)
        parameter.sub_(parameter - piece, alpha=share)
        first += parameter.numel()


def _batches(count: int, size: int | None) -> Iterator[NDArray[np.intp]]:
    """All rows, or ``size`` at a time of one shuffle after the other, by the system's randomness."""
    everything = np.arange(count)
    while size is None or size >= count:
        yield everything
    left = everything[:0]
    while True:
        if len(left) < size:
            left = np.concatenate([left, np.argsort(uniforms(count))])
        yield left[:size]
        left = left[size:]
