"""Weights that a silo gives itself, hidden in the sum: by its loss, its records, or its way against the
others'.

Each is in (0, 1] by what it is defined as, and never below ``LEAST``: below, rounding to the grid would
drown the update that it weighs. Only Σŵ is opened.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError
from silo_agent.algorithms.local_steps import Descent
from silo_agent.algorithms.memory import Arrays
from silo_agent.algorithms.task import Task

LEAST: Final = 2.0**-10
_REMEMBERED: Final = 0.9
"""How much of the averaged loss is from earlier rounds."""
LOSS, BEFORE = "loss", "before"
"""The averaged loss, float32[1]; the model that the last round that counted started from."""


def own_weight(
    task: Task, descent: Descent, global_: NDArray[np.float64] | None
) -> tuple[float | None, Arrays]:
    """ŵ of a round, and what to remember of it; ``None`` where the plan weighs silos itself.

    Args:
        global_: the last global update, float64[d], if there is one.
    """
    training, local = task.training, task.training.local
    if training.weights == "agnostic":
        # The tilted form of agnostic learning (Li et al. 2021, arXiv 2007.01162): a cumulative loss, as in
        # Mohri et al. 2019, would need weights without bound.
        earlier = task.memory.arrays.get(LOSS)
        loss = descent.first_loss
        if earlier is not None:
            loss = _REMEMBERED * float(earlier[0]) + (1 - _REMEMBERED) * loss
        weight = math.exp(local.gamma * (min(loss, _cap(task)) - _cap(task)))
        return max(LEAST, weight), {LOSS: np.array([loss], dtype=np.float32)}
    if training.weights == "fair":
        return fair_weight(descent.first_loss, _cap(task), local.q), {}
    if training.weights == "quality":
        return max(LEAST, math.exp(-max(0.0, descent.last_loss))), {}
    if training.weights == "sqrt_n_over_divergence":
        share = min(len(task.records), training.weight_cap) / training.weight_cap
        divergence = 0.0 if global_ is None else 1.0 - cosine(descent.update.astype(np.float64), global_)
        return max(LEAST, math.sqrt(share) / (1.0 + divergence)), {}
    return None, {}


def fair_weight(loss: float, cap: float, q: float) -> float:
    """(loss / cap)^q of q-FFL (Li et al. 2020, arXiv 1905.10497), within its bounds."""
    return max(LEAST, math.pow(min(1.0, max(0.0, loss) / cap), q))


def last_global_update(task: Task) -> NDArray[np.float64] | None:
    """The model that came minus the one that this silo's last counted round started from: float64[d].

    After rounds without this silo it is the update of all of them together.
    """
    before = task.memory.arrays.get(BEFORE)
    return None if before is None else task.start.astype(np.float64) - before


def cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Of the angle between two vectors; 0 where one of them is zero."""
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    return 0.0 if norms == 0.0 else float(one @ other) / norms


def projected(update: NDArray[np.float32], global_: NDArray[np.float64] | None) -> NDArray[np.float32]:
    """g − (g·G / ‖G‖²) G where the update g goes against the last global one, G; else g."""
    if global_ is None:
        return update
    along, square = float(update.astype(np.float64) @ global_), float(global_ @ global_)
    return update if along >= 0.0 or square == 0.0 else (update - along / square * global_).astype(np.float32)


def within(update: NDArray[np.float32], most: float | None) -> NDArray[np.float32]:
    """Each coordinate brought within ±most, where the plan has a most."""
    return update if most is None else update.clip(-most, most)


def _cap(task: Task) -> float:
    cap = task.training.local.loss_cap
    if cap is None:
        raise SealsumError("training: expected local.loss_cap with these weights")
    return cap
