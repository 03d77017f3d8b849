"""What the server does with the mean update: FedAvg with a server learning rate (McMahan et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.plan import TrainingTerms

ServerStep = Callable[[NDArray[np.float32], NDArray[np.float64], TrainingTerms], NDArray[np.float32]]


def fedavg(
    model: NDArray[np.float32], mean: NDArray[np.float64], training: TrainingTerms
) -> NDArray[np.float32]:
    """model + server_learning_rate · mean, computed in float64: float32[m].

    Raises:
        Unprocessable: a parameter leaves float32's finite range.
    """
    stepped = model.astype(np.float64) + training.server_learning_rate * mean
    if not np.all(np.abs(stepped) <= np.finfo(np.float32).max):
        raise Unprocessable("model: a parameter left the finite range of float32; training diverged")
    return stepped.astype(np.float32)


STEPS: Final[Mapping[str, ServerStep]] = MappingProxyType(
    {"fedavg": fedavg, "dp_fedavg": fedavg, "dp_fedsgd": fedavg}
)
