"""Build a torch module from a job's public terms, and move flat vectors in and out of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.findings import Finding, PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms, TensorSpec
from privacy.update import flatten, split_tensors
from silo_agent.engines.standardised import convolution
from silo_agent.models.experts import Experts
from silo_agent.models.hypernetwork import Hypernetwork
from silo_agent.models.image_layouts import image_of
from silo_agent.models.images import ResNet, UNet
from silo_agent.models.layouts import (
    CNN_KERNELS,
    CNN_PADDING,
    CNN_STRIDE,
    assert_standardises,
    cnn_positions,
    cnn_side,
    model_terms,
)
from silo_agent.models.module_adapter import ModuleAdapter, loaded, tensors_of
from silo_agent.models.own import OwnAdapter, OwnModule


@runtime_checkable
class ModelAdapter(Protocol):
    """What a silo must have to train a kind of model."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        """The tensors that ``build`` will have, in order."""
        ...

    def build(self, terms: ModelTerms) -> nn.Module:
        """A module from float32[n, inputs] to one logit a record, or K logits of K > 2 classes."""
        ...


class _BuiltIn:
    """Layouts are those that researchers describe jobs with."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        outputs = _outputs(terms)
        return model_terms(
            terms.adapter, terms.inputs, terms.hidden, outputs, terms.standardise_weights
        ).layout


class FeedForward(_BuiltIn):
    """``logistic``, ``linear`` and ``cox`` (no hidden layer) and ``mlp`` (tanh between layers)."""

    def build(self, terms: ModelTerms) -> nn.Module:
        sizes = [terms.inputs, *terms.hidden, _outputs(terms)]
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (width_in, width_out) in enumerate(pairwise(sizes), start=1):
            if number > 1:
                layers[f"tanh{number - 1}"] = nn.Tanh()
            layers[f"layer{number}"] = nn.Linear(width_in, width_out, bias=terms.adapter != "cox")
        return nn.Sequential(layers)


class Convolutional(_BuiltIn):
    """``cnn``: two strided convolutions and a layer, tanh behind each; for grey square images."""

    def build(self, terms: ModelTerms) -> nn.Module:
        side = cnn_side(terms.inputs)
        first, second, units = terms.hidden
        conv = convolution(terms.standardise_weights)
        return nn.Sequential(
            OrderedDict[str, nn.Module](
                image=nn.Unflatten(1, (1, side, side)),
                conv1=conv(1, first, CNN_KERNELS[0], stride=CNN_STRIDE, padding=CNN_PADDING),
                tanh1=nn.Tanh(),
                pool1=nn.MaxPool2d(2, stride=1),
                conv2=conv(first, second, CNN_KERNELS[1], stride=CNN_STRIDE),
                tanh2=nn.Tanh(),
                pool2=nn.MaxPool2d(2, stride=1),
                flat=nn.Flatten(),
                layer3=nn.Linear(second * cnn_positions(side) ** 2, units),
                tanh3=nn.Tanh(),
                layer4=nn.Linear(units, _outputs(terms)),
            )
        )


class Residual(_BuiltIn):
    """``resnet``: residual blocks with GroupNorm, for square images, grey or in colour."""

    def build(self, terms: ModelTerms) -> nn.Module:
        image = image_of(terms.adapter, terms.inputs)
        return ResNet(image, terms.hidden, _outputs(terms), terms.standardise_weights)


class Segmenting(_BuiltIn):
    """``unet``: a logit for each pixel of a square image."""

    def build(self, terms: ModelTerms) -> nn.Module:
        image = image_of(terms.adapter, terms.inputs)
        return UNet(image, terms.hidden, terms.standardise_weights)


def _outputs(terms: ModelTerms) -> int:
    """The length of the last bias, where the adapter's outputs show in it."""
    if terms.adapter == "unet":
        return image_of(terms.adapter, terms.inputs).side ** 2
    if terms.adapter == "cox":
        return 1
    return terms.layout[-1].size if terms.layout else 1


ADAPTERS: dict[str, ModelAdapter] = {
    "logistic": FeedForward(),
    "linear": FeedForward(),
    "cox": FeedForward(),
    "mlp": FeedForward(),
    "cnn": Convolutional(),
    "resnet": Residual(),
    "unet": Segmenting(),
    "experts": Experts(),
    "hypernetwork": Hypernetwork(),
}


def find_adapter(name: str, own: Mapping[str, OwnAdapter]) -> ModelAdapter:
    """The adapter that a job names, from the catalogue or from the silo's own settings.

    Args:
        own: name → ``package.module:Class`` or an ``OwnModule``, as ``silo.yaml`` lists them.

    Raises:
        PolicyRefusal: the silo has none of that name. ConfigurationError: its own does not load.
    """
    if name in ADAPTERS:
        return ADAPTERS[name]
    if name not in own:
        raise PolicyRefusal(
            "model",
            [
                Finding(
                    rule="model.adapter",
                    sentence="The silo has no such model adapter, and takes no code from a job.",
                    expected=f"one of {', '.join(sorted([*ADAPTERS, *own]))}",
                    got=name,
                    remedy="train a model the silo has, or have its owner install and list the adapter",
                )
            ],
        )
    listed = own[name]
    if isinstance(listed, OwnModule):
        return ModuleAdapter(name, listed)
    try:
        adapter = loaded(f"model_adapters.{name}", listed)()
    except TypeError as error:
        raise ConfigurationError(f"model_adapters.{name}: {listed} does not load (TypeError)") from error
    if not isinstance(adapter, ModelAdapter):
        raise ConfigurationError(
            f"model_adapters.{name}: {listed} has no layout and build methods; list a plain torch module as "
            "{module: " + listed + "}"
        )
    return adapter


def assert_layout(adapter: ModelAdapter, terms: ModelTerms) -> None:
    """Refuse terms that describe other tensors than the adapter's.

    The digest that a threat model allows would then not describe what is trained.

    Raises:
        PolicyRefusal: they differ.
        ConfigurationError: they ask for standardised weights, and the adapter has none.
    """
    assert_standardises(terms.adapter, terms.standardise_weights)
    expected = adapter.layout(terms)
    if terms.layout != expected:
        raise PolicyRefusal(
            "model",
            [
                Finding(
                    rule="model.layout",
                    sentence="The job describes other tensors than the silo's adapter builds.",
                    expected=_spelt(expected),
                    got=_spelt(terms.layout),
                    remedy="build the job's model terms with the same release of Sealsum",
                )
            ],
        )


def build_model(adapter: ModelAdapter, terms: ModelTerms, vector: NDArray[np.float32]) -> nn.Module:
    """Build the model and fill it with ``vector``, float32[d].

    Raises:
        PolicyRefusal: as ``assert_layout``.
        ConfigurationError: the adapter builds other tensors than it says.
    """
    assert_layout(adapter, terms)
    module = adapter.build(terms)
    built = tensors_of(module)
    if built != terms.layout:
        raise ConfigurationError(
            f"model_adapters: {terms.adapter} builds {_spelt(built)}, expected its layout"
        )
    load_vector(module, terms, vector)
    return module


@torch.no_grad()
def load_vector(module: nn.Module, terms: ModelTerms, vector: NDArray[np.float32]) -> None:
    """Fill a module that was built from ``terms`` with ``vector``, float32[d]."""
    tensors = split_tensors(terms, vector)
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.from_numpy(tensors[name].copy()))


def export_vector(terms: ModelTerms, module: nn.Module) -> NDArray[np.float32]:
    """The module's parameters as one flat vector, float32[d]."""
    return flatten(
        terms, {name: parameter.detach().cpu().numpy() for name, parameter in module.named_parameters()}
    )


def predict_scores(
    adapter: ModelAdapter, terms: ModelTerms, vector: NDArray[np.float32], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Logits of a model on float32[n, inputs]: float32[n], or float32[n, K] of K > 2 classes."""
    module = build_model(adapter, terms, vector)
    with torch.no_grad():
        scores: NDArray[np.float32] = module(torch.from_numpy(features)).squeeze(-1).numpy()
    return scores


def _spelt(layout: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"{spec.name}{list(spec.shape)}" for spec in layout)
