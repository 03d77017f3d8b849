"""Standardised weights: records are clipped in the space of the numbers that are sent, by every engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms
from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.choice import engine_for
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.engines.standardised import StandardisedConv2d, pulled_back, standardised
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.models.partial import Partial
from silo_agent.models.partial_layouts import partial_start, partial_terms

BUILT = {
    "cnn": model_terms("cnn", 400, (4, 6, 5), standardise_weights=True),
    "resnet": model_terms("resnet", 64, (4, 8), standardise_weights=True),
    "coloured resnet": model_terms("resnet", 192, (8,), standardise_weights=True),
}
ENGINES = {"book_keeping": BookKeeping, "opacus_hooks": OpacusHooks}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As agents train."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _module(terms: ModelTerms) -> nn.Module:
    """In float64, away from where it begins."""
    drawn = np.random.default_rng(1).normal(scale=0.3, size=terms.parameters)
    vector = initial_vector(terms, 0) + drawn.astype(np.float32)
    return build_model(ADAPTERS[terms.adapter], terms, vector).train().double()


def _records(terms: ModelTerms, count: int = 6) -> Records:
    drawn = np.random.default_rng(2)
    features = drawn.uniform(-1, 1, (count, terms.inputs)).astype(np.float32)
    return Records(features, drawn.integers(0, 2, count).astype(np.float32))


def _each(module: nn.Module, records: Records) -> NDArray[np.float64]:
    """Every record's gradient by the trained numbers, by torch.func, which knows none of our engines."""
    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def loss(values: dict[str, torch.Tensor], features: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        logit = functional_call(module, values, (features[None],)).squeeze()
        return nn.functional.softplus(logit) - label * logit

    given = (torch.from_numpy(records.features).double(), torch.from_numpy(records.labels).double())
    found = vmap(grad(loss), (None, 0, 0))(parameters, *given)
    joined: NDArray[np.float64] = torch.cat([one.flatten(1) for one in found.values()], dim=1).numpy()
    return joined


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), channels=st.integers(1, 5), width=st.integers(2, 9))
def test_each_channel_has_mean_zero_and_one_length_and_gradients_go_back_as_autograd_says(
    seed: int, channels: int, width: int
) -> None:
    drawn = torch.Generator().manual_seed(seed)
    weight = torch.randn(channels, width, 1, generator=drawn, dtype=torch.float64).requires_grad_()
    made = standardised(weight)
    spread = weight.detach().flatten(1).var(1, correction=0)
    assert torch.allclose(made.mean((1, 2)), torch.zeros(channels, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(made.square().sum((1, 2)), spread / (spread + 1e-4))
    upstream = torch.randn(3, channels, width, generator=drawn, dtype=torch.float64)
    back = [torch.autograd.grad(made, weight, one[..., None], retain_graph=True)[0] for one in upstream]
    expected = torch.stack(back).squeeze(3)
    assert torch.allclose(pulled_back(weight.detach(), upstream), expected, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("clip", [1e-3, 0.5, 1e6], ids=["all clipped", "some", "none"])
def test_the_clipped_sum_is_that_of_torch_funcs_gradients(engine: str, name: str, clip: float) -> None:
    module, records = _module(BUILT[name]), _records(BUILT[name])
    gradients = _each(module, records)
    factors = np.minimum(1.0, clip / np.linalg.norm(gradients, axis=1))
    expected = factors @ gradients
    got = ENGINES[engine](module).clipped_sum(records, np.arange(6), clip)
    assert np.linalg.norm(got - expected) <= 1e-7 * np.linalg.norm(expected)


def test_units_of_several_records_and_groups_of_channels_are_clipped_as_one() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(
            nn.Unflatten(1, (4, 5, 5)),
            StandardisedConv2d(4, 6, 3, groups=2, padding=1, stride=2),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(54, 1),
        ).double()
    terms = ModelTerms(adapter="any", inputs=100, layout=())
    apart = _records(terms)
    owned = Records(apart.features, apart.labels, units=np.array([0, 0, 1, 1, 2, 2]))
    pairs = _each(module, apart).reshape(3, 2, -1).sum(1)
    clip = float(np.median(np.linalg.norm(pairs, axis=1)))
    expected = np.minimum(1.0, clip / np.linalg.norm(pairs, axis=1)) @ pairs
    for engine in ENGINES.values():
        got = engine(module).clipped_sum(owned, np.arange(3), clip)
        assert np.linalg.norm(got - expected) <= 1e-7 * np.linalg.norm(expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_no_record_moves_the_sum_by_more_than_c_however_short_the_trained_numbers(
    engine: str, length: float
) -> None:
    """The attack: clipped by the weights that layers use, a gradient is as long as it likes by the numbers
    that are noised; a server that sends short ones would see through the noise."""
    module, clip = _module(BUILT["cnn"]), 0.1
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, StandardisedConv2d):
                layer.weight.mul_(length)
    records = _records(BUILT["cnn"])
    made = ENGINES[engine](module)
    for record in range(len(records)):
        assert np.linalg.norm(made.clipped_sum(records, np.array([record]), clip)) <= clip

    layer = next(one for one in module.modules() if isinstance(one, StandardisedConv2d))
    used = torch.randn(1, 4, layer.weight[0].numel(), dtype=torch.float64)
    by_used = clip * used / used.norm()
    leaked = float(pulled_back(layer.weight.detach(), by_used).norm())
    assert (leaked > 10 * clip) == (length < 1)


@pytest.mark.parametrize("name", BUILT)
def test_what_a_channel_adds_or_is_multiplied_by_says_nothing(name: str) -> None:
    module, records = _module(BUILT[name]), _records(BUILT[name])
    features = torch.from_numpy(records.features).double()
    before = module(features)
    convolutions = [one for one in module.modules() if isinstance(one, nn.Conv2d)]
    assert all(isinstance(one, StandardisedConv2d) for one in convolutions)
    with torch.no_grad():
        for layer in convolutions:
            layer.weight.mul_(30).add_(0.5)
    assert torch.allclose(module(features), before, atol=2e-2)
    assert not torch.allclose(module(features.flip(1)), before, atol=2e-2)


@pytest.mark.parametrize("name", BUILT)
def test_book_keeping_trains_it(name: str) -> None:
    terms = BUILT[name]
    module = build_model(ADAPTERS[terms.adapter], terms, initial_vector(terms, 0)).train()
    assert engine_for(module, terms.inputs).name == "book_keeping"


def test_a_unet_has_them_as_well() -> None:
    plain = model_terms("unet", 64, (4, 8), 64)
    asked = model_terms("unet", 64, (4, 8), 64, standardise_weights=True)
    vector, features = initial_vector(plain, 0), _records(plain).features
    assert plain.layout == asked.layout
    scores = [predict_scores(ADAPTERS["unet"], terms, vector, features) for terms in (plain, asked)]
    assert np.isfinite(scores[1]).all()
    assert not np.allclose(*scores)


def test_terms_that_do_not_ask_are_spelt_as_before_and_those_that_do_are_another_architecture() -> None:
    plain, asked = model_terms("cnn", 400, (4, 6, 5)), BUILT["cnn"]
    assert b"standardise" not in canonical_bytes(plain)
    assert plain.architecture != asked.architecture
    assert ModelTerms.model_validate_json(asked.model_dump_json()) == asked


def test_models_without_convolutions_refuse_to_be_asked() -> None:
    expected = "model.standardise_weights: expected with cnn, resnet, unet only, got logistic"
    with pytest.raises(ConfigurationError, match=expected):
        model_terms("logistic", 5, standardise_weights=True)
    terms = model_terms("logistic", 5).model_copy(update={"standardise_weights": True})
    with pytest.raises(ConfigurationError, match=expected):
        build_model(ADAPTERS["logistic"], terms, initial_vector(terms, 0))


def test_a_part_of_a_standardised_base_trains_on_its_frozen_convolutions() -> None:
    whole = BUILT["cnn"]
    weights = initial_vector(whole, 0)
    terms = partial_terms(whole, weights, "base", trainable=("conv1.bias", "layer4.*"))
    start = partial_start(terms, weights, 0)
    features = _records(whole).features
    got = predict_scores(Partial(ADAPTERS["cnn"], weights), terms, start, features)
    assert np.allclose(got, predict_scores(ADAPTERS["cnn"], whole, weights, features), atol=1e-6)
    module = build_model(Partial(ADAPTERS["cnn"], weights), terms, start).train()
    assert engine_for(module, whole.inputs).name == "book_keeping"
