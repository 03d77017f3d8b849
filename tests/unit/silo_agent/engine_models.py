"""Models of every kind that the engines claim to know, small, in float64, with records that fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from silo_agent.data.records import Records
from silo_agent.engines.loss import summed_loss
from silo_agent.engines.standardised import StandardisedConv2d


class Tokens(nn.Module):
    """Numbers in [−1, 1] as words of a vocabulary, embedded; a word may come several times."""

    def __init__(self, vocabulary: int, width: int, padding: int | None = None) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.table = nn.Embedding(vocabulary, width, padding_idx=padding)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        words = ((features + 1) / 2 * self.vocabulary).long().clamp(0, self.vocabulary - 1)
        embedded: torch.Tensor = self.table(words)
        return embedded


class Mean(nn.Module):
    """Over positions."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given.mean(1)


class Block(nn.Module):
    """A feed-forward block with a residual, as transformers have, on T positions."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = self.down(nn.functional.gelu(self.up(self.norm(given))))
        return given + changed


def _image(side: int, channels: int = 1) -> nn.Module:
    return nn.Unflatten(1, (channels, side, side))


@dataclass(frozen=True)
class Kind:
    """How to build a model, and the width of its records."""

    build: Callable[[], nn.Module]
    inputs: int
    classes: int = 2


KINDS: dict[str, Kind] = {
    "logistic": Kind(lambda: nn.Linear(5, 1), 5),
    "softmax": Kind(lambda: nn.Linear(5, 4), 5, 4),
    "mlp": Kind(
        lambda: nn.Sequential(
            nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4, bias=False), nn.ReLU(), nn.Linear(4, 1)
        ),
        6,
    ),
    "wide": Kind(
        lambda: nn.Sequential(
            nn.Linear(20, 150), nn.ReLU(), nn.Linear(150, 130), nn.ReLU(), nn.Linear(130, 1)
        ),
        20,
    ),
    "positions": Kind(
        lambda: nn.Sequential(nn.Unflatten(1, (3, 8)), nn.Linear(8, 40), nn.Tanh(), Mean(), nn.Linear(40, 1)),
        24,
    ),
    "many_positions": Kind(
        lambda: nn.Sequential(nn.Unflatten(1, (40, 3)), nn.Linear(3, 2), nn.Tanh(), Mean(), nn.Linear(2, 1)),
        120,
    ),
    "positions_of_positions": Kind(
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 3, 4)),
            nn.Linear(4, 7),
            nn.Tanh(),
            nn.Flatten(),
            nn.LayerNorm(42),
            nn.Linear(42, 1),
        ),
        24,
    ),
    "cnn1d": Kind(
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 12)),
            nn.Conv1d(2, 6, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(6, 4, 3, dilation=2, bias=False, groups=2),
            nn.Flatten(),
            nn.LazyLinear(1),
        ),
        24,
    ),
    "cnn2d": Kind(
        lambda: nn.Sequential(
            _image(8),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, stride=(2, 1), padding=(1, 0)),
            nn.Tanh(),
            nn.Flatten(),
            nn.LazyLinear(1),
        ),
        64,
    ),
    "few_positions_2d": Kind(
        lambda: nn.Sequential(_image(3, 8), nn.Conv2d(8, 60, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1)),
        72,
    ),
    "grouped": Kind(
        lambda: nn.Sequential(
            _image(5, 4),
            nn.Conv2d(4, 8, 3, groups=4),
            nn.ReLU(),
            nn.Conv2d(8, 16, 2, groups=2, padding=1, dilation=2),
            nn.Flatten(),
            nn.LazyLinear(1),
        ),
        100,
    ),
    "group_norm": Kind(
        lambda: nn.Sequential(
            _image(6),
            nn.Conv2d(1, 4, 3),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 2, padding="valid"),
            nn.GroupNorm(4, 4),
            nn.Flatten(),
            nn.LazyLinear(1),
        ),
        36,
    ),
    "instance_norm": Kind(
        lambda: nn.Sequential(
            _image(6),
            nn.Conv2d(1, 4, 3),
            nn.InstanceNorm2d(4, affine=True),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(1),
        ),
        36,
    ),
    "standardised": Kind(
        lambda: nn.Sequential(
            _image(5, 4),
            StandardisedConv2d(4, 8, 3, groups=4),
            nn.Tanh(),
            StandardisedConv2d(8, 6, 2, padding=1, dilation=2),
            nn.Flatten(),
            nn.LazyLinear(1),
        ),
        100,
    ),
    "embedding": Kind(lambda: nn.Sequential(Tokens(7, 5), Mean(), nn.Tanh(), nn.Linear(5, 1)), 9),
    "padded_embedding": Kind(lambda: nn.Sequential(Tokens(4, 5, padding=0), Mean(), nn.Linear(5, 1)), 9),
    "block": Kind(
        lambda: nn.Sequential(nn.Unflatten(1, (4, 6)), Block(6, 20), Block(6, 20), Mean(), nn.Linear(6, 1)),
        24,
    ),
}


def build(kind: Kind, seed: int) -> nn.Module:
    """In float64, with weights large enough that gradients of records differ."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = kind.build().train()
        module(torch.zeros(2, kind.inputs))  # lazy layers take their shape
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return module.double()


def records_for(kind: Kind, count: int, seed: int, units: NDArray[np.int64] | None = None) -> Records:
    """Records in [−1, 1] with labels of all classes."""
    random = np.random.default_rng(seed)
    features = random.uniform(-1, 1, (count, kind.inputs)).astype(np.float32)
    labels = random.integers(0, kind.classes, count).astype(np.float32)
    return Records(features, labels, classes=kind.classes, units=units)


def clipped_one_by_one(
    module: nn.Module, records: Records, sample: NDArray[np.intp], clip: float
) -> NDArray[np.float64]:
    """The clipped sum by plain autograd, one unit at a time: float64[d]."""
    owners = np.arange(len(records)) if records.units is None else records.units
    parameters = list(module.parameters())
    total = np.zeros(sum(parameter.numel() for parameter in parameters))
    for unit in sample:
        loss = summed_loss(module, records, np.flatnonzero(owners == unit))
        gradients = torch.autograd.grad(loss, parameters)
        gradient = torch.cat([one.double().flatten() for one in gradients]).numpy()
        total += gradient * min(1.0, clip / np.linalg.norm(gradient))
    return total
