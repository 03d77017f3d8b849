"""The models that benchmarks/dp_step.py times a step of; sizes as in the design's table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn


class Block(nn.Module):
    """A feed-forward block with LayerNorm and a residual, as transformers have, over 32 positions."""

    def __init__(self, width: int = 256, hidden: int = 912) -> None:
        super().__init__()
        self.width = width
        self.enter = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.out = nn.Linear(width, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        entered = self.enter(features.view(len(features), -1, self.width))
        left = entered + self.down(nn.functional.gelu(self.up(self.norm(entered))))
        logits: torch.Tensor = self.out(left.mean(1))
        return logits


def _mlp(*sizes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _cnn() -> nn.Module:
    """Of Papernot et al. 2021, for 28 × 28 images."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 1),
    )


def _cnn_with_group_norm() -> nn.Module:
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 28, 28))]
    for channels_in, channels_out in ((1, 32), (32, 64), (64, 128)):
        layers += [
            nn.Conv2d(channels_in, channels_out, 3, padding=1),
            nn.GroupNorm(8, channels_out),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1))


MODELS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "logistic": (100, lambda: nn.Linear(100, 1)),
    "MLP": (64, lambda: _mlp(64, 64, 32, 1)),
    "CNN": (784, _cnn),
    "CNN + GroupNorm": (784, _cnn_with_group_norm),
    "feed-forward block": (32 * 256, Block),
    "wide MLP": (784, lambda: _mlp(784, 1024, 1024, 1)),
}
"""Name → width of a record, and how to build it."""
