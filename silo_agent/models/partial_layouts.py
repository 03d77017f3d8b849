"""Which tensors a job trains that keeps a public base as it is, and what they begin with. Knows no torch."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.ids import Name
from privacy.model_terms import FrozenBase, ModelTerms, TensorSpec
from privacy.update import flatten, model_bytes, model_digest, split_tensors

DOWN, UP = "down.weight", "up.weight"
"""The two thin matrices beside a frozen linear layer: x ↦ W x + b + up(down(x))."""


def partial_terms(
    whole: ModelTerms,
    weights: NDArray[np.float32],
    name: Name,
    trainable: tuple[str, ...] = (),
    low_rank: tuple[str, ...] = (),
    rank: int | None = None,
) -> ModelTerms:
    """The terms of training a part of ``whole``, whose public weights are float32[d].

    Raises:
        ConfigurationError: a name fits nothing, or fits what it may not.
    """
    base = FrozenBase(
        name=name,
        weights=model_digest(whole, [model_bytes(weights)]),
        layout=whole.layout,
        trainable=trainable,
        low_rank=low_rank,
        rank=rank,
    )
    return ModelTerms(
        adapter=whole.adapter,
        inputs=whole.inputs,
        hidden=whole.hidden,
        layout=partial_layout(base),
        base=base,
        standardise_weights=whole.standardise_weights,
    )


def whole_terms(terms: ModelTerms) -> ModelTerms:
    """The terms of the base itself.

    Raises:
        ConfigurationError: they have none.
    """
    if terms.base is None:
        raise ConfigurationError("model.base: expected a base, got none")
    return ModelTerms(
        adapter=terms.adapter,
        inputs=terms.inputs,
        hidden=terms.hidden,
        layout=terms.base.layout,
        standardise_weights=terms.standardise_weights,
    )


def adapted_layers(base: FrozenBase) -> list[str]:
    """The linear layers that ``low_rank`` names.

    Raises:
        ConfigurationError: a name fits none.
    """
    linear = [
        spec.name.removesuffix(".weight")
        for spec in base.layout
        if spec.name.endswith(".weight") and len(spec.shape) == 2
    ]
    for pattern in base.low_rank:
        if not any(fnmatchcase(layer, pattern) for layer in linear):
            raise ConfigurationError(
                f"model.low_rank: expected linear layers of the base ({', '.join(linear)}), got {pattern}"
            )
    return [layer for layer in linear if _named(layer, base.low_rank)]


def trained_tensors(base: FrozenBase) -> list[str]:
    """The base's own tensors that ``trainable`` names.

    Raises:
        ConfigurationError: a name fits none, or a tensor of a layer that gets thin matrices.
    """
    names = [spec.name for spec in base.layout]
    for pattern in base.trainable:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigurationError(
                f"model.trainable: expected tensors of the base ({', '.join(names)}), got {pattern}"
            )
    trained = [name for name in names if _named(name, base.trainable)]
    both = [name for name in trained if name.rpartition(".")[0] in adapted_layers(base)]
    if both:
        raise ConfigurationError(
            f"model.trainable: expected none of a layer in low_rank, got {', '.join(both)}; train it or "
            "adapt it"
        )
    return trained


def partial_layout(base: FrozenBase) -> tuple[TensorSpec, ...]:
    """The tensors that train, in the order of the base's layers."""
    trained, adapted = trained_tensors(base), adapted_layers(base)
    layout: list[TensorSpec] = []
    for spec in base.layout:
        layer = spec.name.rpartition(".")[0]
        if spec.name in trained:
            layout.append(spec)
        elif layer in adapted and spec.name.endswith(".weight") and base.rank is not None:
            height, width = spec.shape
            layout.append(TensorSpec(name=f"{layer}.{DOWN}", shape=(base.rank, width)))
            layout.append(TensorSpec(name=f"{layer}.{UP}", shape=(height, base.rank)))
    return tuple(layout)


def partial_start(terms: ModelTerms, weights: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """The base itself, as a job's first model: float32[d] of the tensors that train.

    Its own begin as they are; of two thin matrices the first is drawn by the public seed, the second zero.
    """
    generator = np.random.default_rng(seed)
    own = split_tensors(whole_terms(terms), weights)
    tensors: dict[str, NDArray[np.float32]] = {}
    for spec in terms.layout:
        if spec.name in own:
            tensors[spec.name] = own[spec.name]
        elif spec.name.endswith(f".{UP}"):
            tensors[spec.name] = np.zeros(spec.shape, dtype=np.float32)
        else:
            limit = np.sqrt(6.0 / sum(spec.shape))
            tensors[spec.name] = generator.uniform(-limit, limit, spec.shape).astype(np.float32)
    return flatten(terms, tensors)


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
