"""A torch module that the silo's owner listed by its dotted name, as a model adapter: the only door to such.

A job says the name and the tensors; the silo builds its own module and refuses a job that describes others.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from privacy.errors import ConfigurationError
from privacy.model_terms import ModelTerms, TensorSpec
from silo_agent.engines.group_norm import with_group_norm
from silo_agent.models.out_of_place import OutOfPlace, assert_same, without_inplace_layers
from silo_agent.models.own import OwnModule

_SEED = 0
"""Public: buffers that a module draws, such as positions, are the same at every silo."""


class Listed(nn.Module):
    """The module, given records in its own shape. Its tensors are named ``body.…``."""

    def __init__(self, body: nn.Module, image: tuple[int, ...], out_of_place: bool) -> None:
        super().__init__()
        self.body = body
        self._image, self._out_of_place = image, out_of_place

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        given = features.reshape(len(features), *self._image) if self._image else features
        with OutOfPlace() if self._out_of_place else nullcontext():
            outputs: torch.Tensor = self.body(given)
        return outputs


class ModuleAdapter:
    """Builds what ``silo.yaml`` says under ``model_adapters``."""

    def __init__(self, name: str, own: OwnModule) -> None:
        self.name = name
        self._own = own

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        """The module's own tensors; its sizes come from ``arguments``, none from the job.

        Raises:
            ConfigurationError: as ``build``.
        """
        self._assert_fits(terms)
        return checked_layout(self.name, self._own.model_dump_json(), terms.inputs)

    def build(self, terms: ModelTerms) -> nn.Module:
        """
        Raises:
            ConfigurationError: it does not load, is no module, takes other records than the job's, or says
                something else out of place.
        """
        self._assert_fits(terms)
        return made(self.name, self._own)

    def _assert_fits(self, terms: ModelTerms) -> None:
        if terms.hidden:
            raise ConfigurationError(
                f"model.hidden: expected none with {self.name}, whose sizes its silo says, got "
                f"{list(terms.hidden)}"
            )
        if self._own.image and math.prod(self._own.image) != terms.inputs:
            raise ConfigurationError(
                f"model_adapters.{self.name}.image: expected {terms.inputs} numbers (the width of the job's "
                f"data), got {' × '.join(map(str, self._own.image))}"
            )


def made(name: str, own: OwnModule) -> Listed:
    """The module, converted as its owner asked.

    Raises:
        ConfigurationError: it does not load, is no module, or conversion changed its tensors.
    """
    where = f"model_adapters.{name}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        try:
            module = loaded(where, own.module)(**own.arguments)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigurationError(f"{where}: {own.module} does not build: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigurationError(f"{where}: expected {own.module} to return a torch module")
    if own.convert_batchnorm:
        before = tensors_of(module)
        module = with_group_norm(module)
        if tensors_of(module) != before:
            raise ConfigurationError(f"{where}: expected the same tensors with GroupNorm as with BatchNorm")
    if own.out_of_place:
        module = without_inplace_layers(module)
    return Listed(module, own.image, own.out_of_place)


@lru_cache(maxsize=16)
def checked_layout(name: str, own: str, inputs: int) -> tuple[TensorSpec, ...]:
    """Tensors of the module, looked at once a process: a layout is asked for in every round.

    Args:
        own: an ``OwnModule`` as JSON.

    Raises:
        ConfigurationError: as ``made``; or it says something else out of place.
    """
    listed = OwnModule.model_validate_json(own)
    module = made(name, listed)
    if listed.out_of_place:
        unchanged = made(name, listed.model_copy(update={"out_of_place": False}))
        assert_same(f"model_adapters.{name}", module, unchanged, inputs)
    return tensors_of(module)


def loaded(where: str, path: str) -> Callable[..., Any]:
    """What ``package.module:Name`` names, called by nobody yet.

    Raises:
        ConfigurationError: there is no such thing.
    """
    module_name, _, name = path.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{where}: {path} does not load ({type(error).__name__})") from error
    return found


def tensors_of(module: nn.Module) -> tuple[TensorSpec, ...]:
    """Names and shapes of its parameters, in order."""
    named = module.named_parameters()
    return tuple(TensorSpec(name=name, shape=tuple(tensor.shape)) for name, tensor in named)
