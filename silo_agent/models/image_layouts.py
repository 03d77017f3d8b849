"""Names and shapes of the built-in models of square images, grey or in colour. Knows no torch.

Pixels come row by row; a colour image as all of red, then green, then blue. Both networks normalise by groups
of channels of one record (GroupNorm): statistics of a batch would couple records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from privacy.errors import ConfigurationError
from privacy.plan import TensorSpec

GROUP = 4
"""Channels that are normalised together; channels come in multiples of it."""
_COLOURS = 3
_LEAST_SIDE = 8
_LEVELS = range(2, 6)
Layout = tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Image:
    """What a record of so many numbers is as an image."""

    channels: int
    side: int


def image_of(adapter: str, inputs: int) -> Image:
    """A grey image of side² numbers or a colour image of 3 · side²; no number is both.

    Raises:
        ConfigurationError: neither, or too small.
    """
    for channels in (1, _COLOURS):
        side = math.isqrt(inputs // channels)
        if channels * side * side == inputs and side >= _LEAST_SIDE:
            return Image(channels, side)
    raise ConfigurationError(
        f"model.inputs: expected side² numbers of a grey or 3 · side² of a colour image with {adapter}, of "
        f"{_LEAST_SIDE} pixels a side or more, got {inputs}"
    )


def resnet_layout(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    """A stem, a residual block for each of ``hidden`` (its channels), and a layer on the mean over positions.

    Where channels change, the image is halved.

    Raises:
        ConfigurationError: sizes that fit no such network.
    """
    image = image_of("resnet", inputs)
    _assert_channels("resnet", hidden, "of its blocks, such as [16, 32, 64]")
    halved = sum(before != after for before, after in pairwise(hidden))
    if image.side >> halved == 0:
        raise ConfigurationError(
            f"model.hidden: expected at most {image.side.bit_length() - 1} changes of channels for "
            f"{image.side} pixels a side, each of which halves the image, got {halved}"
        )
    layout = [_conv("stem", image.channels, hidden[0], 3), *_norm("stem_norm", hidden[0])]
    for number, (before, after) in enumerate(zip([hidden[0], *hidden], hidden, strict=False), start=1):
        layout += _double_conv(f"block{number}", before, after)
        if before != after:
            layout += [
                _conv(f"block{number}.shortcut", before, after, 1),
                *_norm(f"block{number}.shortcut_norm", after),
            ]
    head = (
        TensorSpec(name="head.weight", shape=(outputs, hidden[-1])),
        TensorSpec(name="head.bias", shape=(outputs,)),
    )
    return (*layout, *head)


def unet_layout(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    """Two convolutions a level, ``hidden`` being each level's channels; a logit for each pixel comes out.

    Each level below the first has half the pixels a side.

    Raises:
        ConfigurationError: sizes that fit no such network, or a label that is no mask of the image.
    """
    image = image_of("unet", inputs)
    _assert_channels("unet", hidden, "of its levels, such as [8, 16, 32]")
    if len(hidden) not in _LEVELS or image.side % (1 << (len(hidden) - 1)):
        raise ConfigurationError(
            f"model.hidden: expected {_LEVELS[0]} to {_LEVELS[-1]} levels, each half as wide as the one "
            f"above, for {image.side} pixels a side, got {len(hidden)}"
        )
    if outputs != image.side**2:
        raise ConfigurationError(
            f"model.adapter: unet tells each of {image.side**2} pixels, and the job's label has {outputs} "
            "outputs; give data.label a mask of as many pixels"
        )
    layout: list[TensorSpec] = []
    for number, (before, after) in enumerate(pairwise([image.channels, *hidden]), start=1):
        layout += _double_conv(f"down{number}", before, after)
    for number in range(len(hidden) - 1, 0, -1):
        below, here = hidden[number], hidden[number - 1]
        layout.append(_conv(f"up{number}.narrow", below, here, 3))
        layout += _norm(f"up{number}.narrow_norm", here)
        layout += _double_conv(f"up{number}.join", 2 * here, here)
    head = (
        TensorSpec(name="head.weight", shape=(1, hidden[0], 1, 1)),
        TensorSpec(name="head.bias", shape=(1,)),
    )
    return (*layout, *head)


def _assert_channels(adapter: str, hidden: Sequence[int], what: str) -> None:
    if not hidden or any(channels % GROUP for channels in hidden):
        raise ConfigurationError(
            f"model.hidden: expected the channels {what}, in multiples of {GROUP}, with {adapter}, got "
            f"{list(hidden)}"
        )


def _double_conv(name: str, before: int, after: int) -> Iterator[TensorSpec]:
    yield _conv(f"{name}.conv1", before, after, 3)
    yield from _norm(f"{name}.norm1", after)
    yield _conv(f"{name}.conv2", after, after, 3)
    yield from _norm(f"{name}.norm2", after)


def _conv(name: str, before: int, after: int, kernel: int) -> TensorSpec:
    return TensorSpec(name=f"{name}.weight", shape=(after, before, kernel, kernel))


def _norm(name: str, channels: int) -> Iterator[TensorSpec]:
    for kind in ("weight", "bias"):
        yield TensorSpec(name=f"{name}.{kind}", shape=(channels,))
