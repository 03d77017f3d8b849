"""What every way to make a personal model works with: the model's code, who is trained on, which parts move.

Everything here is the silo's own business: nothing is clipped, noised, counted or sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms
from silo_agent.data.holdout import folds
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, ModelAdapter, build_model
from silo_agent.models.layouts import initial_vector

Vector = NDArray[np.float32]
FOLDS = 5


@dataclass(frozen=True)
class Workplace:
    """A silo's training patients, and the model that is fitted to them."""

    adapter: ModelAdapter
    terms: ModelTerms
    records: Records = field(repr=False)
    """Of the patients who are trained on; those held out are not here."""
    moving: frozenset[str] = frozenset()
    """Names of the tensors that may move; all of them if empty."""

    def module(self, vector: Vector) -> nn.Module:
        """The model in float64 and training mode, with gradients for what may move only."""
        module = build_model(self.adapter, self.terms, vector).double().train()
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(self.moves(name))
        return module

    def moves(self, tensor: str) -> bool:
        """Whether a tensor may move."""
        return not self.moving or tensor in self.moving

    def scored(self, vector: Vector) -> nn.Module:
        """The model in evaluation mode; batch statistics, where it has any, are those of these records."""
        module = build_model(self.adapter, self.terms, vector).double()
        settle_statistics(module, self.records)
        return module.eval()

    def split(self) -> Iterator[tuple[Workplace, Records]]:
        """Cross-validation by patient: who is fitted to, and who is asked; a patient's fold is fixed.

        Raises:
            ConfigurationError: the patients are too few to be fitted to and asked.
        """
        if len(set(self.records.patients)) < 2 * FOLDS:
            raise ConfigurationError(
                f"personalise: expected at least {2 * FOLDS} patients to choose by cross-validation, got "
                "fewer; name the choice instead (--prior-width, --steps or --regular-weight)"
            )
        place = folds(self.records.patients, FOLDS)
        for fold in sorted(set(place.tolist())):
            inside, outside = np.flatnonzero(place != fold), np.flatnonzero(place == fold)
            yield replace(self, records=self.records.only(inside)), self.records.only(outside)


@torch.no_grad()
def settle_statistics(module: nn.Module, records: Records) -> None:
    """Make running statistics those of these records, exactly: one pass, no decay. Nothing without any."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    if not layers:
        return
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    dtype = next(module.parameters()).dtype
    module.train()(torch.from_numpy(records.features).to(dtype))


def first_weights(adapter: ModelAdapter, terms: ModelTerms) -> Vector:
    """Where a model of nobody's begins: the built-in first weights, or an adapter's own at a fixed seed."""
    if terms.adapter in ADAPTERS:
        return initial_vector(terms, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = adapter.build(terms)
    return np.concatenate([parameter.detach().float().numpy().ravel() for parameter in built.parameters()])
