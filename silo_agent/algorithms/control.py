"""SCAFFOLD's corrections in one sum (Karimireddy et al. 2020, arXiv 1910.06378, option II).

The correction c − c_k of silo k is made of the model that came out and of the silo's own last model only:

    m = (x⁺ − x) / server rate            the mean update, read off two models in a row
    c − c_k  +=  (Δ_k − m) / (steps · learning rate)

With all silos in the sum this is the two-sum form: there c = −m / (steps · rate). In any sum the increments
add up to zero under the weights of the sum, and so do all corrections; a silo that dropped out keeps its
own. Under DP Δ_k is the noised update, so that corrections cost nothing more.

Where the server's step hides the mean (momentum, Adam, a schedule, averages), there are two sums: Δ_k /
(steps · learning rate) travels as the vector ``control`` under the same weights, and its mean takes the place
of m / (steps · learning rate). Wherever both forms are possible they are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError
from privacy.plan import TrainingTerms
from privacy.secagg.vectors import VectorName
from privacy.vector_terms import CONTROL as SECOND_SUM
from silo_agent.algorithms.memory import Arrays
from silo_agent.algorithms.on_grid import on_grid
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate

CONTROL, AHEAD, SPAN, PACE = "control", "ahead", "span", "pace"
"""c − c_k; Δ_k + x / server rate, until x⁺ is known; steps · learning rate of that round. In two sums, until
the second is known: Δ_k over those steps and that rate."""
Opened = Mapping[VectorName, tuple[float, ...]]
"""What a round's further vectors opened to."""
NONE: Final[Opened] = MappingProxyType({})


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


def second_sum(task: Task, update: NDArray[np.float32]) -> dict[VectorName, FloatUpdate]:
    """What travels beside the update, float32[d], in two sums; nothing in one."""
    if task.training.local.control_sums == 1:
        return {}
    terms = next(vector.terms for vector in task.further if vector.name == SECOND_SUM)
    return {VectorName(SECOND_SUM): FloatUpdate(on_grid(update / np.float32(_span(task.training)), terms))}


def to_settle(
    task: Task,
    correction: NDArray[np.float32] | None,
    update: NDArray[np.float32],
    beside: Mapping[VectorName, FloatUpdate],
) -> Arrays:
    """What to remember of a round that made this update, float32[d], and sends ``beside`` with it."""
    training = task.training
    control = np.zeros_like(task.start) if correction is None else correction
    if beside:
        return {CONTROL: control, PACE: beside[VectorName(SECOND_SUM)].values}
    return {
        CONTROL: control,
        AHEAD: (update + task.start.astype(np.float64) / training.server_learning_rate).astype(np.float32),
        SPAN: np.array([_span(training)], dtype=np.float32),
    }


def settled(
    training: TrainingTerms, arrays: Arrays, model_out: NDArray[np.float32], opened: Opened = NONE
) -> Arrays:
    """The same once the round's model, float32[d], is known, or in two sums what the second opened to.

    Raises:
        SealsumError: two sums, and the second is not there: a bug, since results are checked.
    """
    others = {name: array for name, array in arrays.items() if name not in (CONTROL, AHEAD, SPAN, PACE)}
    if PACE in arrays:
        mean = np.array(opened.get(VectorName(SECOND_SUM), ()))
        if mean.shape != arrays[PACE].shape:
            raise SealsumError(f"result.further: expected {len(arrays[PACE])} numbers of {SECOND_SUM}")
        return {**others, CONTROL: (arrays[CONTROL] + (arrays[PACE] - mean)).astype(np.float32)}
    gained = arrays[AHEAD] - model_out.astype(np.float64) / training.server_learning_rate
    return {**others, CONTROL: (arrays[CONTROL] + gained / float(arrays[SPAN][0])).astype(np.float32)}


def _span(training: TrainingTerms) -> float:
    return training.local_steps * training.learning_rate
