"""What a silo sends of its update where a round sums some coordinates only: the same ones at every silo.

Without feedback the others are forgotten. With it they stay at the silo, and what it sends next time is made
of its new update and of all that it has not sent yet: error feedback (Seide et al. 2014; Karimireddy et al.
2019, arXiv 1901.09847). Under DP an update is noised before it is cut, so what is kept is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from silo_agent.algorithms.on_grid import on_grid
from silo_agent.algorithms.own_weights import within
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate, GridUpdate, Update

UNSENT = "unsent"
"""In a silo's memory: what of its updates it has not sent yet, float32[d]."""


def sent_part(task: Task, run: Callable[[Task], Update]) -> Update:
    """The update of ``run``, cut to the round's coordinates. Raises as ``run``."""
    update = run(task)
    if task.sent is None:
        return update
    chosen = task.sent.coordinates
    if isinstance(update, GridUpdate):
        return GridUpdate(update.steps[chosen], update.further, update.keep)
    sparse = task.training.sparse
    if sparse is None or not sparse.feedback:
        return FloatUpdate(update.values[chosen], update.further, update.weight, update.keep)
    whole = update.values + task.memory.arrays.get(UNSENT, np.float32(0))
    # Rounded here, so that what is kept is exactly what the sum does not have.
    part = on_grid(within(whole[chosen], task.training.local.coordinate_clip), task.vector)
    whole[chosen] -= part
    return FloatUpdate(part, update.further, update.weight, {**update.keep, UNSENT: whole})
