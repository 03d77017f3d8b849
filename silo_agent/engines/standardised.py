"""Weight standardisation: convolutions by weights of mean zero and one length, whatever is trained.

Qiao et al. 2019 (arXiv 1903.10520); by √D as Brock et al. 2021 (arXiv 2101.08692), which De et al. 2022 use
under DP (arXiv 2204.13650, §3). Each output channel has the weights w = (v − mean(v)) / √(D·(var(v) + ε)) of
D trained numbers v: no statistic of any record is in them, so no record meets another.

What is sent and noised is v, so records are clipped in the space of v. The map's derivative at v is linear,
and the same for all records. But it changes lengths by 1/std(v): a gradient that was clipped by w and then
brought to v could be of any length. So engines bring each unit's gradient to v first (``pulled_back``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import nn

_LEAST: Final = 1e-4
"""ε, added to variances: channels whose numbers are all equal have the weights zero."""


def standardised(weight: torch.Tensor) -> torch.Tensor:
    """w of v, [P, …]: over all dimensions but the first."""
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    return (centred / _lengths(centred)).view_as(weight)


def pulled_back(weight: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Gradients by v of those by w, unit by unit: [U, P, D] → [U, P, D].

    With c = v − mean(v) and s = √(Σc² + D·ε), w = c / s and the transposed derivative takes g to
    (h − w·⟨h, w⟩) / s, where h = g − mean(g).

    Args:
        weight: v, [P, …] of D numbers a channel.
    """
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    lengths = _lengths(centred)
    unit = centred / lengths
    moved = gradients - gradients.mean(2, keepdim=True)
    moved -= unit * (moved * unit).sum(2, keepdim=True)
    return moved.div_(lengths)


def _lengths(centred: torch.Tensor) -> torch.Tensor:
    """√(D · (var + ε)) of each channel, [P, 1]."""
    return (centred.square().sum(1, keepdim=True) + _LEAST * centred.shape[1]).sqrt()


class StandardisedConv2d(nn.Conv2d):
    """A convolution by the standardised weights of its parameter, which is v."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self._conv_forward(given, standardised(self.weight), self.bias)
        return output


def convolution(standardise: bool) -> Callable[..., nn.Conv2d]:
    """The class of a model's convolutions."""
    return StandardisedConv2d if standardise else nn.Conv2d
