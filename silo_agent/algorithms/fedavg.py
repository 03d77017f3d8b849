"""``fedavg``: gradient descent on the mean loss of the silo's records, for plans admitted without DP.

By the plan's terms the same descent is FedProx (a pull), SCAFFOLD (a correction), projected, cached, or
weighted by the silo.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.vectors import VectorName
from silo_agent.algorithms.cache import kept_for_reuse, sent_again
from silo_agent.algorithms.control import correction_of, second_sum, to_settle
from silo_agent.algorithms.local_steps import Descent, local_steps
from silo_agent.algorithms.on_grid import on_grid
from silo_agent.algorithms.own_weights import BEFORE, last_global_update, own_weight, projected, within
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate


def fedavg(task: Task) -> FloatUpdate:
    """End minus start of ``local_steps`` steps (McMahan et al. 2017).

    Raises:
        Stopped: the agent was told to end, between two steps. Diverged: the steps led nowhere.
    """
    local = task.training.local
    again = sent_again(task)
    if again is not None:
        return again
    correction = correction_of(task)
    warm = local.control == "warm" and correction is None
    descent = _warm_step(task) if warm else local_steps(task, correction)
    keep: dict[str, NDArray[np.float32]] = {}
    global_ = None
    if local.projection or task.training.weights == "sqrt_n_over_divergence":
        global_ = last_global_update(task)
        keep[BEFORE] = task.start
    if local.projection:
        descent = replace(descent, update=projected(descent.update, global_))
    descent = replace(descent, update=within(descent.update, local.coordinate_clip))
    if local.reuse_below > 0:
        keep |= kept_for_reuse(task, descent.update)
    beside: dict[VectorName, FloatUpdate] = {}
    if local.control != "none":
        descent = replace(descent, update=on_grid(descent.update, task.vector))
        beside = second_sum(task, descent.update)
        keep |= to_settle(task, correction, descent.update, beside)
    weight, remembered = own_weight(task, descent, global_)
    return FloatUpdate(descent.update, dict(beside), weight, {**keep, **remembered})


def _warm_step(task: Task) -> Descent:
    """One step as long as all of the round's, along the gradient at the model: c_k is then that gradient."""
    training = task.training
    whole = training.model_copy(
        update={"local_steps": 1, "learning_rate": training.local_steps * training.learning_rate}
    )
    return local_steps(replace(task, training=whole))
