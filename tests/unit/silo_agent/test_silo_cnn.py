"""The small convolutional network: its layout is what is built, and it is trained by book-keeping."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms
from privacy.update import split_tensors
from silo_agent.engines.choice import engine_for
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms

PAPERNOT = (16, 32, 32)


def _vector(terms: ModelTerms) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(1).normal(scale=0.1, size=terms.parameters).astype(np.float32)


def test_it_has_the_26010_parameters_of_the_article() -> None:
    assert model_terms("cnn", 28 * 28, PAPERNOT, 10).parameters == 26_010


@pytest.mark.parametrize("side", [20, 21, 28, 32, 45])
@pytest.mark.parametrize("outputs", [1, 10])
def test_what_is_built_has_the_layout_and_computes_what_the_article_says(side: int, outputs: int) -> None:
    terms = model_terms("cnn", side * side, (3, 4, 5), outputs)
    vector = _vector(terms)
    records = np.random.default_rng(2).uniform(-1, 1, (6, side * side)).astype(np.float32)
    given = {name: torch.from_numpy(tensor) for name, tensor in split_tensors(terms, vector).items()}
    maps = torch.from_numpy(records).view(6, 1, side, side)
    maps = functional.conv2d(maps, given["conv1.weight"], given["conv1.bias"], stride=2, padding=2).tanh()
    maps = functional.max_pool2d(maps, 2, stride=1)
    maps = functional.conv2d(maps, given["conv2.weight"], given["conv2.bias"], stride=2).tanh()
    flat = functional.max_pool2d(maps, 2, stride=1).flatten(1)
    units = (flat @ given["layer3.weight"].T + given["layer3.bias"]).tanh()
    expected = (units @ given["layer4.weight"].T + given["layer4.bias"]).squeeze(-1).numpy()

    assert np.allclose(predict_scores(ADAPTERS["cnn"], terms, vector, records), expected, atol=1e-5)


def test_it_is_trained_by_book_keeping() -> None:
    terms = model_terms("cnn", 400, (2, 3, 4))
    module = build_model(ADAPTERS["cnn"], terms, _vector(terms))

    assert engine_for(module, 400).name == "book_keeping"


def test_its_first_weights_are_bounded_as_glorot_says() -> None:
    terms = model_terms("cnn", 784, PAPERNOT, 10)
    tensors = split_tensors(terms, initial_vector(terms, seed=0))

    assert np.abs(tensors["conv1.weight"]).max() == pytest.approx((6 / (64 * 17)) ** 0.5, rel=0.01)
    assert not tensors["conv1.bias"].any()


@pytest.mark.parametrize(
    ("inputs", "hidden", "message"),
    [
        (785, PAPERNOT, "model.inputs: expected a square of 20 pixels a side or more with cnn, got 785"),
        (361, PAPERNOT, "got 361"),
        (784, (16, 32), "model.hidden: expected 3 sizes with cnn, such as"),
        (784, (), "got \\[\\]"),
    ],
)
def test_sizes_that_fit_no_such_network_are_refused(
    inputs: int, hidden: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_terms("cnn", inputs, hidden)
