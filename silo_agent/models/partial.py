"""A public model of which a job trains a part: the rest are constants, neither sent nor noised.

Under DP what counts is how many coordinates are noised: a few that say much, on features that public data
made (Yu et al. 2021, arXiv 2110.06500). Low-rank layers are those of Hu et al. 2021 (arXiv 2106.09685).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.findings import Finding, PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.model_terms import ModelTerms, TensorSpec
from privacy.update import model_bytes, model_digest
from silo_agent.models.adapters import ModelAdapter, build_model
from silo_agent.models.files import read_model
from silo_agent.models.partial_layouts import (
    adapted_layers,
    partial_layout,
    trained_tensors,
    whole_terms,
)


class LowRank(nn.Module):
    """A frozen linear layer and, beside it, a product of two thin matrices that train."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight: torch.Tensor
        self.bias: torch.Tensor | None
        self.register_buffer("weight", layer.weight.detach().clone())
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone())
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        frozen = nn.functional.linear(given, self.weight, self.bias)
        added: torch.Tensor = self.up(self.down(given))
        return frozen + added


class Partial:
    """An adapter around that of the base: same module, but what does not train is a constant in it."""

    def __init__(self, inner: ModelAdapter, weights: NDArray[np.float32]) -> None:
        """
        Args:
            inner: builds the base.
            weights: its public weights, float32[d], whose digest has been checked.
        """
        self._inner = inner
        self._weights = weights

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        """As ``ModelAdapter``."""
        return () if terms.base is None else partial_layout(terms.base)

    def build(self, terms: ModelTerms) -> nn.Module:
        """As ``ModelAdapter``.

        Raises:
            ConfigurationError: a layer of ``low_rank`` is no plain linear one.
        """
        module = build_model(self._inner, whole_terms(terms), self._weights)
        if terms.base is None:
            return module
        trained, rank = trained_tensors(terms.base), terms.base.rank
        for name, parameter in list(module.named_parameters()):
            if name not in trained:
                place, _, own = name.rpartition(".")
                owner = module.get_submodule(place)
                delattr(owner, own)
                owner.register_buffer(own, parameter.detach().clone())
        for name in adapted_layers(terms.base):
            layer = module.get_submodule(name)
            parent, _, own = name.rpartition(".")
            if not isinstance(layer, nn.Linear) or rank is None:
                raise ConfigurationError(
                    f"model.low_rank: expected a linear layer, got {name}, a {type(layer).__name__}"
                )
            module.get_submodule(parent).add_module(own, LowRank(layer, rank))
        return module


def on_base(adapter: ModelAdapter, terms: ModelTerms, public_models: Mapping[str, Path]) -> ModelAdapter:
    """The adapter that trains what the terms say, on the silo's own copy of the base if they name one.

    Raises:
        PolicyRefusal: the silo has no such base, or other weights under its name. ConfigurationError: its
            file does not fit.
    """
    base = terms.base
    if base is None:
        return adapter
    if base.name not in public_models:
        raise _refusal(
            "The silo has no public model of that name, and takes no weights from a job.",
            f"one of public_models in silo.yaml ({', '.join(sorted(public_models)) or 'none'})",
            base.name,
        )
    weights, digest = _weights_in(public_models[base.name], whole_terms(terms))
    if digest != base.weights:
        raise _refusal(
            "The silo's public model of that name has other weights than the job's.", base.weights, digest
        )
    return Partial(adapter, weights)


@lru_cache(maxsize=2)
def _weights_in(path: Path, whole: ModelTerms) -> tuple[NDArray[np.float32], str]:
    """Read once; a file that is changed afterwards is looked at when the agent starts anew."""
    weights = read_model(path, whole)
    return weights, model_digest(whole, [model_bytes(weights)])


def _refusal(sentence: str, expected: str, got: str) -> PolicyRefusal:
    return PolicyRefusal(
        "model",
        [
            Finding(
                rule="model.base",
                sentence=sentence,
                expected=expected,
                got=got,
                remedy="have the silo's owner fetch the file and list it, or train another base",
            )
        ],
    )
