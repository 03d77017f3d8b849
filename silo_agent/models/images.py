"""``resnet`` and ``unet``: the modules that ``image_layouts`` describes, for the silos that train them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import interpolate, max_pool2d

from silo_agent.engines.standardised import convolution
from silo_agent.models.image_layouts import GROUP, Image


class _DoubleConv(nn.Module):
    """Two convolutions of 3 × 3, each normalised; what comes out has not passed the last ReLU."""

    def __init__(self, before: int, after: int, standardise: bool, stride: int = 1) -> None:
        super().__init__()
        conv = convolution(standardise)
        self.conv1 = conv(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(after)
        self.conv2 = conv(after, after, 3, padding=1, bias=False)
        self.norm2 = _norm(after)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm1(self.conv1(given)))
        normal: torch.Tensor = self.norm2(self.conv2(inner))
        return normal


class _Residual(_DoubleConv):
    """What went in is added again (He et al. 2016): by a 1 × 1 convolution, halved, where channels change."""

    def __init__(self, before: int, after: int, standardise: bool) -> None:
        changes = before != after
        super().__init__(before, after, standardise, stride=2 if changes else 1)
        self.changes = changes
        if changes:
            self.shortcut = convolution(standardise)(before, after, 1, stride=2, bias=False)
            self.shortcut_norm = _norm(after)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        kept = self.shortcut_norm(self.shortcut(given)) if self.changes else given
        return torch.relu(super().forward(given) + kept)


class ResNet(nn.Module):
    """float32[n, channels · side²] → [n, outputs]."""

    def __init__(self, image: Image, hidden: Sequence[int], outputs: int, standardise: bool = False) -> None:
        super().__init__()
        self.image = nn.Unflatten(1, (image.channels, image.side, image.side))
        self.stem = convolution(standardise)(image.channels, hidden[0], 3, padding=1, bias=False)
        self.stem_norm = _norm(hidden[0])
        for number, sizes in enumerate(pairwise([hidden[0], *hidden]), start=1):
            self.add_module(f"block{number}", _Residual(*sizes, standardise))
        self.head = nn.Linear(hidden[-1], outputs)
        self.blocks = len(hidden)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        maps = torch.relu(self.stem_norm(self.stem(self.image(features))))
        for number in range(1, self.blocks + 1):
            maps = self.get_submodule(f"block{number}")(maps)
        outputs: torch.Tensor = self.head(maps.mean((2, 3)))
        return outputs


class _Up(nn.Module):
    """From the level below: doubled, narrowed, beside what this level kept, and convolved."""

    def __init__(self, below: int, here: int, standardise: bool) -> None:
        super().__init__()
        self.narrow = convolution(standardise)(below, here, 3, padding=1, bias=False)
        self.narrow_norm = _norm(here)
        self.join = _DoubleConv(2 * here, here, standardise)

    def forward(self, below: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        doubled = interpolate(below, scale_factor=2, mode="nearest")
        narrowed = torch.relu(self.narrow_norm(self.narrow(doubled)))
        return torch.relu(self.join(torch.cat([kept, narrowed], dim=1)))


class UNet(nn.Module):
    """float32[n, channels · side²] → [n, side²], a logit for each pixel (Ronneberger et al. 2015)."""

    def __init__(self, image: Image, hidden: Sequence[int], standardise: bool = False) -> None:
        super().__init__()
        self.image = nn.Unflatten(1, (image.channels, image.side, image.side))
        self.levels = len(hidden)
        for number, sizes in enumerate(pairwise([image.channels, *hidden]), start=1):
            self.add_module(f"down{number}", _DoubleConv(*sizes, standardise))
        for number in range(self.levels - 1, 0, -1):
            self.add_module(f"up{number}", _Up(hidden[number], hidden[number - 1], standardise))
        self.head = nn.Conv2d(hidden[0], 1, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        maps, kept = self.image(features), []
        for number in range(1, self.levels + 1):
            maps = torch.relu(self.get_submodule(f"down{number}")(maps))
            if number < self.levels:
                kept.append(maps)
                maps = max_pool2d(maps, 2)
        for number in range(self.levels - 1, 0, -1):
            maps = self.get_submodule(f"up{number}")(maps, kept.pop())
        logits: torch.Tensor = self.head(maps)
        return logits.flatten(1)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // GROUP, channels)
