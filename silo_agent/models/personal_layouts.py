"""Names and shapes of models with a part that is meant to stay at each silo: a gate, an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from privacy.errors import ConfigurationError
from privacy.model_terms import TensorSpec
from silo_agent.models.image_layouts import Layout

GATE: Final = "gate"
EMBEDDING: Final = "embedding"
_MOST_EXPERTS: Final = 64


def experts_layout(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    """A gate, then experts one after the other.

    Raises:
        ConfigurationError: as ``experts_sizes``.
    """
    experts, units = experts_sizes(hidden)
    shapes = {GATE: (experts, inputs)}
    for number in range(1, experts + 1):
        layers = (
            {"layer1": (units, inputs), "layer2": (outputs, units)}
            if units
            else {"layer1": (outputs, inputs)}
        )
        shapes |= {f"expert{number}.{layer}": shape for layer, shape in layers.items()}
    return tuple(
        TensorSpec(name=f"{name}.{kind}", shape=extent)
        for name, shape in shapes.items()
        for kind, extent in (("weight", shape), ("bias", shape[:1]))
    )


def experts_sizes(hidden: Sequence[int]) -> tuple[int, int]:
    """How many experts, and the units of their tanh layer, 0 for none.

    Raises:
        ConfigurationError: sizes that are none of a mixture.
    """
    if len(hidden) not in (1, 2) or not 2 <= hidden[0] <= _MOST_EXPERTS:
        raise ConfigurationError(
            f"model.hidden: expected 2 to {_MOST_EXPERTS} experts and, if they have a layer of their own, "
            f"its units, such as [3] or [3, 16], got {list(hidden)}"
        )
    return hidden[0], hidden[1] if len(hidden) == 2 else 0


def hypernetwork_layout(inputs: int, hidden: Sequence[int], outputs: int) -> Layout:
    """The embedding, then the layer that writes a linear model from it.

    Raises:
        ConfigurationError: as ``embedding_size``.
    """
    size, written = embedding_size(hidden), outputs * (inputs + 1)
    return (
        TensorSpec(name=EMBEDDING, shape=(size,)),
        TensorSpec(name="generator.weight", shape=(written, size)),
        TensorSpec(name="generator.bias", shape=(written,)),
    )


def embedding_size(hidden: Sequence[int]) -> int:
    """The embedding's length.

    Raises:
        ConfigurationError: not one number.
    """
    if len(hidden) != 1:
        raise ConfigurationError(
            f"model.hidden: expected one length of the embedding, such as [4], got {list(hidden)}"
        )
    return hidden[0]
