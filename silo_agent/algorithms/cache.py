"""A client cache: a silo whose gradient has hardly changed sends its last update again, and saves its steps.

The rule is that of lazily aggregated gradients (Chen et al. 2018, arXiv 1805.09965), at the silo alone: one
gradient at the model that came, g, against the one that the last update began with, g'. Where ‖g − g'‖ is
below a public part of ‖g'‖, the silo sends the last update, compensated to first order: Δ − steps · learning
rate · (g − g'). Every silo sends a vector in every round, so nobody can tell which ones are cached. Under DP
the rule would read a gradient without noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silo_agent.algorithms.local_steps import mean_gradient
from silo_agent.algorithms.memory import Arrays
from silo_agent.algorithms.own_weights import within
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate

LAST, FIRST_GRADIENT, TIMES = "cached", "cached_gradient", "cached_times"
"""The last update that was trained; the gradient it began with, float32[d] each; how often it was sent again
since, float32[1]."""


def sent_again(task: Task) -> FloatUpdate | None:
    """The last update once more, float32[d], where the plan allows it and the gradient has hardly changed.

    Raises:
        Stopped: before the pass. Diverged: the loss or its gradient is not finite.
    """
    local, arrays = task.training.local, task.memory.arrays
    if LAST not in arrays or arrays[TIMES][0] >= local.reuse_rounds:
        return None
    changed = _gradient(task) - arrays[FIRST_GRADIENT]
    if float(np.linalg.norm(changed)) >= local.reuse_below * float(np.linalg.norm(arrays[FIRST_GRADIENT])):
        return None
    reach = task.training.local_steps * task.training.learning_rate
    compensated = (arrays[LAST] - reach * changed).astype(np.float32)
    keep = {**arrays, TIMES: arrays[TIMES] + np.float32(1)}
    return FloatUpdate(within(compensated, local.coordinate_clip), keep=keep)


def kept_for_reuse(task: Task, update: NDArray[np.float32]) -> Arrays:
    """What to remember of an update that was trained, float32[d]. Raises as ``sent_again``."""
    return {LAST: update, FIRST_GRADIENT: _gradient(task), TIMES: np.zeros(1, dtype=np.float32)}


def _gradient(task: Task) -> NDArray[np.float32]:
    task.refuse_if_stopping()
    _, gradient = mean_gradient(task.module(), task, np.arange(len(task.records)))
    return gradient.astype(np.float32)
