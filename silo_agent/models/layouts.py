"""Names and shapes of the built-in models, and their public first weights. Knows no torch.

Researchers describe a job with it; silos check that what they build has exactly this layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms, TensorSpec
from privacy.update import flatten
from silo_agent.models.image_layouts import Layout, resnet_layout, unet_layout
from silo_agent.models.personal_layouts import experts_layout, hypernetwork_layout

CNN_SIZES = 3
"""Of ``hidden`` with ``cnn``: channels of both convolutions, units of the layer behind them."""
CNN_KERNELS = (8, 4)
CNN_STRIDE = 2
CNN_PADDING = 2
_LEAST_SIDE = 20
"""Pixels a side: fewer leave nothing behind two strided convolutions and two poolings."""


def outputs_for(classes: int) -> int:
    """Logits a record: one tells two classes apart, and K > 2 classes take one each."""
    return 1 if classes == 2 else classes


def model_terms(
    adapter: str,
    inputs: int,
    hidden: Sequence[int] = (),
    outputs: int = 1,
    standardise_weights: bool = False,
) -> ModelTerms:
    """The terms of a built-in model (docs/models.md): an adapter of ``BUILT_IN`` and its sizes.

    ``logistic`` and ``linear`` are one layer, ``cox`` is one without an intercept, ``mlp`` has tanh layers of
    sizes ``hidden``. ``cnn`` is that of Papernot et al. 2021 (arXiv 2007.14191, Table 3) for grey square
    images of 20 pixels a side or more, row by row: two convolutions and a layer with tanh, of the sizes
    ``hidden``. ``resnet`` and ``unet`` are told in ``image_layouts``, ``experts`` and
    ``hypernetwork`` in ``personal_layouts``.

    Args:
        outputs: numbers a record, as the job's label counts them. They show in the layout alone.
        standardise_weights: of convolutions (``engines.standardised``); the layout is the same.

    Raises:
        ConfigurationError: another adapter, or sizes that do not fit it.
    """
    if adapter not in BUILT_IN:
        raise ConfigurationError(f"model.adapter: expected one of {', '.join(BUILT_IN)}, got {adapter!r}")
    layout = BUILT_IN[adapter](inputs, hidden, outputs)
    assert_standardises(adapter, standardise_weights)
    return ModelTerms(
        adapter=adapter,
        inputs=inputs,
        hidden=tuple(hidden),
        layout=layout,
        standardise_weights=standardise_weights,
    )


def _one_layer(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    _assert_no_sizes("logistic and linear", hidden)
    return _feed_forward([inputs, outputs])


def _proportional(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    _assert_no_sizes("cox", hidden)
    if outputs != 1:
        raise ConfigurationError(f"model.adapter: cox has one output, and the job's label has {outputs}")
    return (TensorSpec(name="layer1.weight", shape=(1, inputs)),)


def _perceptron(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    if not hidden:
        raise ConfigurationError("model.hidden: expected the sizes of layers with mlp, such as [16], got []")
    return _feed_forward([inputs, *hidden, outputs])


def _assert_no_sizes(adapters: str, hidden: Sequence[int]) -> None:
    if hidden:
        raise ConfigurationError(f"model.hidden: expected none with {adapters}, got {list(hidden)}")


def _feed_forward(sizes: Sequence[int]) -> Layout:
    layout: list[TensorSpec] = []
    for number, (width_in, width_out) in enumerate(pairwise(sizes), start=1):
        layout.append(TensorSpec(name=f"layer{number}.weight", shape=(width_out, width_in)))
        layout.append(TensorSpec(name=f"layer{number}.bias", shape=(width_out,)))
    return tuple(layout)


def cnn_side(inputs: int) -> int:
    """Pixels a side of the images that a ``cnn`` of so many inputs reads.

    Raises:
        ConfigurationError: not a square, or too small a one.
    """
    side = math.isqrt(inputs)
    if side * side != inputs or side < _LEAST_SIDE:
        raise ConfigurationError(
            f"model.inputs: expected a square of {_LEAST_SIDE} pixels a side or more with cnn, got {inputs}"
        )
    return side


def cnn_positions(side: int) -> int:
    """Positions a side behind both convolutions, each followed by a maximum over two pixels, one apart."""
    for kernel, padding in zip(CNN_KERNELS, (CNN_PADDING, 0), strict=True):
        side = (side + 2 * padding - kernel) // CNN_STRIDE + 1 - 1
    return side


def _cnn_layout(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    if len(hidden) != CNN_SIZES:
        raise ConfigurationError(
            f"model.hidden: expected {CNN_SIZES} sizes with cnn, such as [16, 32, 32], got {list(hidden)}"
        )
    first, second, units = hidden
    behind = second * cnn_positions(cnn_side(inputs)) ** 2
    shapes = {
        "conv1": (first, 1, CNN_KERNELS[0], CNN_KERNELS[0]),
        "conv2": (second, first, CNN_KERNELS[1], CNN_KERNELS[1]),
        "layer3": (units, behind),
        "layer4": (outputs, units),
    }
    return tuple(
        TensorSpec(name=f"{name}.{kind}", shape=extent)
        for name, shape in shapes.items()
        for kind, extent in (("weight", shape), ("bias", shape[:1]))
    )


BUILT_IN: Final[Mapping[str, Callable[[int, Sequence[int], int], Layout]]] = MappingProxyType(
    {
        "logistic": _one_layer,
        "linear": _one_layer,
        "cox": _proportional,
        "mlp": _perceptron,
        "cnn": _cnn_layout,
        "resnet": resnet_layout,
        "unet": unet_layout,
        "experts": experts_layout,
        "hypernetwork": hypernetwork_layout,
    }
)
"""Adapter → layout of so many inputs, hidden sizes and outputs."""


STANDARDISING: Final = ("cnn", "resnet", "unet")
"""Adapters whose convolutions may have standardised weights."""


def assert_standardises(adapter: str, asked: bool) -> None:
    """
    Raises:
        ConfigurationError: standardised weights are asked of an adapter that has none.
    """
    if asked and adapter not in STANDARDISING:
        raise ConfigurationError(
            f"model.standardise_weights: expected with {', '.join(STANDARDISING)} only, got {adapter}; leave "
            "it out"
        )


def initial_vector(terms: ModelTerms, seed: int) -> NDArray[np.float32]:
    """A first model that anybody can recompute: zeros for one layer, else Glorot uniform (2010): float32[d].

    Normalisation begins as none: its weights are ones.
    The seed is public and touches no data, key, mask or noise.
    """
    generator = np.random.default_rng(seed)
    tensors: dict[str, NDArray[np.float32]] = {}
    for spec in terms.layout:
        if len(spec.shape) == 1 and spec.name.endswith(".weight"):
            tensors[spec.name] = np.ones(spec.shape, dtype=np.float32)
        elif len(spec.shape) < 2 or len(terms.layout) <= 2:
            tensors[spec.name] = np.zeros(spec.shape, dtype=np.float32)
        else:
            field = math.prod(spec.shape[2:])
            limit = np.sqrt(6.0 / (field * (spec.shape[0] + spec.shape[1])))
            tensors[spec.name] = generator.uniform(-limit, limit, spec.shape).astype(np.float32)
    return flatten(terms, tensors)
