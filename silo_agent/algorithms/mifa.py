"""``mifa``: absent silos count with their last update (Gu et al. 2021, arXiv 2106.04159).

A silo sends the difference between this update and its last one that counted; the server adds differences
up to the sum of everybody's last update. Nobody but the silo ever holds one of them.
"""

from __future__ import annotations

import numpy as np

from silo_agent.algorithms.local_steps import local_steps
from silo_agent.algorithms.on_grid import on_grid
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate

LAST = "last"


def mifa(task: Task) -> FloatUpdate:
    """Update minus the last one: float32[d].

    Raises:
        Stopped: the agent was told to end, between two steps. Diverged: the steps led nowhere.
    """
    update = local_steps(task).update
    before = task.memory.arrays.get(LAST, np.zeros_like(update))
    difference = on_grid((update - before).astype(np.float32), task.vector)
    return FloatUpdate(difference, keep={LAST: before + difference})
