"""``sparse_masks``: a silo sends the coordinates that its steps moved most, and a one for each of them.

The server divides each coordinate by how many sent it, and leaves alone what fewer than a minimum did. Which
coordinates those are is chosen by the silo's records: counts are published, and where one silo alone sent a
coordinate, the sum is its value. So it is refused with DP (``tests/attacks/test_personal_bound.py``).
"""

from __future__ import annotations

import math

import numpy as np

from privacy.secagg.vectors import VectorName
from privacy.vector_terms import MASK
from silo_agent.algorithms.local_steps import local_steps
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate


def sparse_masks(task: Task) -> FloatUpdate:
    """mask ⊙ (end minus start), float32[d], and the mask.

    Raises:
        Stopped: the agent was told to end, between two steps. Diverged: the steps led nowhere.
    """
    update = local_steps(task).update
    count = math.ceil(task.training.local.mask_share * len(update))
    mask = np.zeros(len(update), dtype=np.float32)
    # Stable, so that equals are taken in the model's order.
    mask[np.argsort(-np.abs(update), kind="stable")[:count]] = 1.0
    return FloatUpdate(update * mask, {VectorName(MASK): FloatUpdate(mask)})
