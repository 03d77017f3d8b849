"""``newton``: gradient and Hessian of the mean loss, of which the server makes one Newton step.

For models small enough that the Hessian's upper triangle is one further vector, and convex: generalised
linear models (logistic, linear, Poisson with a time at risk, which ``exponential`` labels are) and Cox's. A
handful of rounds equals training on all records together, if silos weigh by their records.

A partial likelihood has risk sets, and one across silos would be no sum: each silo has its own, so that what
is fitted is Cox's model stratified by silo (Kalbfleisch, Prentice 2002, section 4.4), with a baseline hazard
for each. Its gradient and Hessian are exact sums over silos.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privacy.secagg.vectors import VectorName
from privacy.vector_terms import HESSIAN
from silo_agent.algorithms.local_steps import mean_gradient
from silo_agent.algorithms.task import Task
from silo_agent.engines.loss import mean_loss
from silo_agent.update import FloatUpdate


def newton(task: Task) -> FloatUpdate:
    """−gradient, float32[d], and the Hessian's upper triangle, row by row, as the vector ``hessian``.

    Raises:
        Stopped: before the pass. Diverged: the loss or its gradient is not finite.
    """
    torch.set_num_threads(task.workbench.threads)
    task.refuse_if_stopping()
    module = task.module().double()
    _, gradient = mean_gradient(module, task, np.arange(len(task.records)))
    hessian = _mean_hessian(module, task)
    triangle = hessian[np.triu_indices(len(hessian))].astype(np.float32)
    return FloatUpdate(-gradient.astype(np.float32), further={VectorName(HESSIAN): FloatUpdate(triangle)})


def _mean_hessian(module: nn.Module, task: Task) -> NDArray[np.float64]:
    """float64[d, d], by one more backward pass a parameter."""
    rows = np.arange(len(task.records))
    parameters = list(module.parameters())
    loss = mean_loss(module, task.records, rows)
    gradient = torch.cat([one.flatten() for one in torch.autograd.grad(loss, parameters, create_graph=True)])
    lines = [torch.autograd.grad(one, parameters, retain_graph=True) for one in gradient]
    hessian: NDArray[np.float64] = torch.stack(
        [torch.cat([one.flatten() for one in line]) for line in lines]
    ).numpy()
    return hessian
