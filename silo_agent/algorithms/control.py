"""SCAFFOLD's corrections in one sum (Karimireddy et al. 2020, arXiv 1910.06378, option II).

The correction c − c_k of silo k is made of the model that came out and of the silo's own last model only:

    m = (x⁺ − x) / server rate            the mean update, read off two models in a row
    c − c_k  +=  (Δ_k − m) / (steps · learning rate)

With all silos in the sum this is the two-sum form: there c = −m / (steps · rate). In any sum the increments
add up to zero under the weights of the sum, and so do all corrections; a silo that dropped out keeps its
own. Under DP Δ_k is the noised update, so that corrections cost nothing more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.plan import TrainingTerms
from silo_agent.algorithms.memory import Arrays
from silo_agent.algorithms.task import Task

CONTROL, AHEAD, SPAN = "control", "ahead", "span"
"""c − c_k; Δ_k + x / server rate, until x⁺ is known; steps · learning rate of that round."""


def correction_of(task: Task) -> NDArray[np.float32] | None:
    """What to add to each gradient, float32[d]; ``None`` for zero.

    An increment whose x⁺ never reached this silo is left out, as if it had dropped out of that round.
    """
    if task.training.local.control == "none" or CONTROL not in task.memory.arrays:
        return None
    arrays = task.memory.arrays
    if AHEAD in arrays and task.memory.model_out == task.digest:
        arrays = settled(task.training, arrays, task.start)
    return arrays[CONTROL]


def to_settle(task: Task, correction: NDArray[np.float32] | None, update: NDArray[np.float32]) -> Arrays:
    """What to remember of a round that made this update, float32[d]."""
    training = task.training
    return {
        CONTROL: np.zeros_like(task.start) if correction is None else correction,
        AHEAD: (update + task.start.astype(np.float64) / training.server_learning_rate).astype(np.float32),
        SPAN: np.array([training.local_steps * training.learning_rate], dtype=np.float32),
    }


def settled(training: TrainingTerms, arrays: Arrays, model_out: NDArray[np.float32]) -> Arrays:
    """The same once the round's model, float32[d], is known."""
    gained = arrays[AHEAD] - model_out.astype(np.float64) / training.server_learning_rate
    others = {name: array for name, array in arrays.items() if name not in (CONTROL, AHEAD, SPAN)}
    return {**others, CONTROL: (arrays[CONTROL] + gained / float(arrays[SPAN][0])).astype(np.float32)}
