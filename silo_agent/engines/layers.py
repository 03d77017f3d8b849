"""How each layer's parameters get their gradients by unit from what went in and what came back.

A catalogue of exact types: a subclass may compute anything. Each rule is given a layer's input [U·m, …], the
gradient of the loss by its output [U·m, …], and U; rows are unit by unit, m records each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from silo_agent.engines.embedding import EmbeddingGradients
from silo_agent.engines.products import (
    BLOCK,
    Columns,
    Instances,
    UnitGradients,
    blocks,
    by_kernel_row,
    in_gram_form,
    instances,
    outer_products,
)
from silo_agent.engines.standardised import StandardisedConv2d, pulled_back

Rule = Callable[..., Iterator[UnitGradients]]


def _linear(layer: nn.Linear, given: torch.Tensor, back: torch.Tensor, units: int) -> Iterator[UnitGradients]:
    inputs = given.reshape(units, 1, -1, layer.in_features).transpose(-1, -2)
    outputs = back.reshape(units, 1, -1, layer.out_features).transpose(-1, -2)
    if layer.weight.requires_grad:
        yield outer_products(layer.weight, lambda block: inputs[block], outputs)
    yield from _bias(layer.bias, outputs)


def _convolution(
    layer: nn.Conv1d | nn.Conv2d, given: torch.Tensor, back: torch.Tensor, units: int
) -> Iterator[UnitGradients]:
    if isinstance(layer, nn.Conv1d):
        given, back = given.unsqueeze(2), back.unsqueeze(2)
    each, groups = len(given) // units, layer.groups
    images = functional.pad(given, _padding(layer)).contiguous()
    kernel, stride, dilation = (_pair(side) for side in (layer.kernel_size, layer.stride, layer.dilation))

    def columns(block: slice) -> torch.Tensor:
        # As functional.unfold, but copied from a view, which takes a third of the time.
        rows = images[block.start * each : block.stop * each]
        row, channel, down, right = rows.stride()
        steps = (dilation[0] * down, dilation[1] * right, stride[0] * down, stride[1] * right)
        view = rows.as_strided((*rows.shape[:2], *kernel, *back.shape[2:]), (row, channel, *steps))
        return _by_unit(view.flatten(4).flatten(1, 3), groups, each)

    outputs = _by_unit(back.flatten(2), groups, each)
    if layer.weight.requires_grad and isinstance(layer, StandardisedConv2d):
        # One by one: what the way to the trained numbers does to a length differs from channel to channel.
        weight = layer.weight
        gradients = instances(columns, outputs, weight[0].numel()).view(units, *weight.flatten(1).shape)
        yield Instances(weight, pulled_back(weight, gradients))
    elif layer.weight.requires_grad:
        if stride[0] == each == 1 and not in_gram_form(layer.weight, groups, outputs.shape[3]):
            rows = _columns_by_row(images, layer, back.shape[3], outputs.shape[3])
            yield by_kernel_row(layer.weight, rows, outputs)
        else:
            yield outer_products(layer.weight, columns, outputs)
    yield from _bias(layer.bias, outputs)


def _columns_by_row(
    images: torch.Tensor, layer: nn.Conv1d | nn.Conv2d, width: int, positions: int
) -> list[Columns]:
    """What each row of a kernel sees, [U, R, D, T], where rows follow each other one by one.

    Only the steps to the right are copied. A step down is a step in memory.
    """
    kernel, stride, dilation = (_pair(side) for side in (layer.kernel_size, layer.stride, layer.dilation))
    units, channels, height, _ = images.shape
    row, channel, down, right = images.stride()
    steps = (row, channel, dilation[1] * right, down, stride[1] * right)
    view = images.as_strided((units, channels, kernel[1], height, width), steps)
    held = view.reshape(units, layer.groups, channels // layer.groups * kernel[1], height * width)

    def of_row(start: int) -> Columns:
        return lambda block: held[block, :, :, start : start + positions]

    return [of_row(number * dilation[0] * width) for number in range(kernel[0])]


def _by_unit(columns: torch.Tensor, groups: int, each: int) -> torch.Tensor:
    """[U·m, R·D, T] → [U, R, D, m·T]."""
    rows, channels, positions = columns.shape
    apart = columns.reshape(rows // each, each, groups, channels // groups, positions)
    return apart.permute(0, 2, 3, 1, 4).flatten(3)


def _bias(bias: torch.Tensor | None, outputs: torch.Tensor) -> Iterator[UnitGradients]:
    if bias is not None and bias.requires_grad:
        yield Instances(bias, outputs.sum(-1))


def _pair(sides: tuple[int, ...]) -> tuple[int, int]:
    return (1, sides[0]) if len(sides) == 1 else (sides[0], sides[1])


def _padding(layer: nn.Conv1d | nn.Conv2d) -> list[int]:
    """Zeros before and after, last dimension first, as ``functional.pad`` takes them."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    if layer.padding == "same":  # what is odd goes behind (torch.nn.Conv2d)
        total = [d * (k - 1) for d, k in zip(_pair(layer.dilation), _pair(layer.kernel_size), strict=True)]
        return [side for one in reversed(total) for side in (one // 2, one - one // 2)]
    sides = [int(side) for side in layer.padding]
    high, wide = (0, sides[0]) if len(sides) == 1 else (sides[0], sides[1])
    return [wide, wide, high, high]


def _layer_norm(
    layer: nn.LayerNorm, given: torch.Tensor, back: torch.Tensor, units: int
) -> Iterator[UnitGradients]:
    def normal(rows: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(rows, layer.normalized_shape, eps=layer.eps)

    return _affine(layer, (-1, layer.weight.numel(), 1), normal, given, back, units)


def _channels(
    layer: nn.GroupNorm | nn.InstanceNorm1d | nn.InstanceNorm2d,
    given: torch.Tensor,
    back: torch.Tensor,
    units: int,
) -> Iterator[UnitGradients]:
    def normal(rows: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, nn.GroupNorm):
            return functional.group_norm(rows, layer.num_groups, eps=layer.eps)
        return functional.instance_norm(rows, eps=layer.eps)

    return _affine(layer, (len(given) // units, given.shape[1], -1), normal, given, back, units)


def _affine(
    layer: nn.Module,
    shape: tuple[int, int, int],
    normal: Callable[[torch.Tensor], torch.Tensor],
    given: torch.Tensor,
    back: torch.Tensor,
    units: int,
) -> Iterator[UnitGradients]:
    """Of y = weight · normal(x) + bias, whose elements meet the second of the three dimensions of a unit."""
    weight, bias = layer.weight, layer.bias
    each = len(given) // units
    sums: list[list[torch.Tensor]] = [[], []]
    for block in blocks(units, given.numel() // units, 2 * BLOCK):
        rows = slice(block.start * each, block.stop * each)
        scales, shifts = normal(given[rows]), back[rows]
        for one, terms in zip(sums, (scales.mul_(shifts), shifts), strict=True):
            one.append(terms.reshape(block.stop - block.start, *shape).sum(3).sum(1))
    for parameter, of in zip((weight, bias), sums, strict=True):
        if isinstance(parameter, nn.Parameter) and parameter.requires_grad:
            yield Instances(parameter, torch.cat(of))


def _embedding(
    layer: nn.Embedding, given: torch.Tensor, back: torch.Tensor, units: int
) -> Iterator[UnitGradients]:
    if layer.weight.requires_grad:
        yield EmbeddingGradients(layer.weight, given, back, units, layer.padding_idx)


RULES: Final[Mapping[type[nn.Module], Rule]] = MappingProxyType(
    {
        nn.Linear: _linear,
        nn.Conv1d: _convolution,
        nn.Conv2d: _convolution,
        StandardisedConv2d: _convolution,
        nn.LayerNorm: _layer_norm,
        nn.GroupNorm: _channels,
        nn.InstanceNorm1d: _channels,
        nn.InstanceNorm2d: _channels,
        nn.Embedding: _embedding,
    }
)
CALLED_AGAIN: Final = (nn.Linear,)
"""Layers that may be called several times a pass, as those of ``models.recurrent`` are."""


def as_positions(calls: list[torch.Tensor]) -> torch.Tensor:
    """What several calls of a linear layer saw, each [U·m, …, D], as positions of one: [U·m, T, D]."""
    return torch.cat([call.reshape(len(call), -1, call.shape[-1]) for call in calls], dim=1)


def why_not(layer: nn.Module) -> str | None:
    """What of a layer with parameters of its own has no rule here, or nothing."""
    kind = type(layer)
    if isinstance(layer, nn.RNNBase):
        return f"{kind.__name__} hides what its gates see; build it of silo_agent.models.recurrent.Recurrent"
    if kind not in RULES:
        return f"{kind.__name__} has no rule"
    own = {name for name, parameter in layer.named_parameters(recurse=False)}
    if not own <= {"weight", "bias"}:
        return f"{kind.__name__} with the parameters {', '.join(sorted(own))}"
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        return f"{kind.__name__} with padding_mode {layer.padding_mode}"
    if getattr(layer, "track_running_stats", False):
        return f"{kind.__name__} with running statistics"
    if isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq or layer.sparse):
        return "Embedding with max_norm, scale_grad_by_freq or sparse"
    return None
