"""``qfedavg``: q-FedAvg (Li et al. 2020, arXiv 1905.10497, Algorithm 2), which lifts the silos that do worst.

Σ F^q Δ / Σ (F^q + q · F^(q−1) · ‖Δ‖² / learning rate): F^q, over its cap, is the weight ŵ of the update;
the second term of the divisor travels as the vector ``curvature``.
"""

from __future__ import annotations

import numpy as np

from privacy.secagg.vectors import VectorName
from privacy.vector_terms import CURVATURE
from silo_agent.algorithms.local_steps import local_steps
from silo_agent.algorithms.own_weights import LEAST, own_weight
from silo_agent.algorithms.task import Task
from silo_agent.update import FloatUpdate


def qfedavg(task: Task) -> FloatUpdate:
    """As ``fedavg``, with ŵ by the loss at the model that came.

    Raises:
        Stopped: the agent was told to end, between two steps. Diverged: the steps led nowhere.
    """
    descent = local_steps(task)
    weight, _ = own_weight(task, descent, None)
    length = float(np.square(descent.update.astype(np.float64)).sum()) / task.training.learning_rate
    ratio = task.training.local.q * (weight or 0.0) * length / max(descent.first_loss, LEAST)
    further = {VectorName(CURVATURE): FloatUpdate(np.array([ratio], dtype=np.float32))}
    return FloatUpdate(descent.update, further=further, weight=weight)
