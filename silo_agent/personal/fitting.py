"""The one optimiser of personal models: the mean loss of a silo's patients plus a pull towards a centre.

The pull λ/2 · ‖w − c‖² is minus the logarithm of a Gaussian prior around c whose width is 1/√(nλ) for n
records; c is the job's model, or a first model where nothing is to be borrowed from others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import nn

from privacy.errors import Unprocessable
from silo_agent.engines.loss import mean_loss
from silo_agent.personal.workplace import Vector, Workplace

ITERATIONS: Final = 200
"""Of L-BFGS; convex models take a few dozen."""


@dataclass(frozen=True)
class Pull:
    """λ/2 · ‖w − centre‖² beside a mean loss."""

    centre: Vector = field(repr=False)
    strength: float


def fitted(place: Workplace, pull: Pull, iterations: int = ITERATIONS) -> Vector:
    """The minimum of mean loss and pull, searched from the centre by L-BFGS on all records: float32[d].

    What may not move stays at the centre.

    Raises:
        Unprocessable: the search left the finite numbers.
    """
    torch.set_num_threads(1)
    module, everything = place.module(pull.centre), np.arange(len(place.records))
    free = [parameter for parameter in module.parameters() if parameter.requires_grad]
    centre = [parameter.detach().clone() for parameter in free]
    search = torch.optim.LBFGS(
        free, max_iter=iterations, tolerance_grad=1e-8, history_size=20, line_search_fn="strong_wolfe"
    )

    def objective() -> float:
        search.zero_grad()
        loss = mean_loss(module, place.records, everything)
        for parameter, start in zip(free, centre, strict=True):
            loss = loss + pull.strength / 2 * (parameter - start).square().sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    search.step(objective)  # type: ignore[no-untyped-call]  # torch types none of its optimisers' steps
    return _finite(module)


def descended(place: Workplace, start: Vector, learning_rate: float, steps: int) -> Iterator[Vector]:
    """Plain gradient descent on the mean loss: the model after each of ``steps`` steps, float32[d].

    Raises:
        Unprocessable: a step left the finite numbers.
    """
    torch.set_num_threads(1)
    module, everything = place.module(start), np.arange(len(place.records))
    for _ in range(steps):
        module.zero_grad()
        torch.autograd.backward(mean_loss(module, place.records, everything))
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=learning_rate)
        yield _finite(module)


def _finite(module: nn.Module) -> Vector:
    values = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    if not np.all(np.abs(values) <= np.finfo(np.float32).max):
        raise Unprocessable("personalise: a parameter left the finite numbers; training diverged")
    vector: Vector = values.astype(np.float32)
    return vector
