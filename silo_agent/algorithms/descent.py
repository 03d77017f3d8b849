"""Plain gradient descent, the whole of what moves a silo's weights: w ← w − learning rate · gradient."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


@torch.no_grad()
def descend(module: nn.Module, gradient: NDArray[np.float64], learning_rate: float) -> None:
    """One step in place along a flat gradient, float64[d] in the order of the layout, applied as float32."""
    start = 0
    for parameter in module.parameters():
        piece = gradient[start : start + parameter.numel()].astype(np.float32)
        parameter.sub_(
            torch.from_numpy(piece).reshape(parameter.shape).to(parameter.device), alpha=learning_rate
        )
        start += parameter.numel()
