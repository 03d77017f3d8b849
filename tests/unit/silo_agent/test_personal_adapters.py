"""Models with a part that may stay: what they compute, against plain arithmetic, and what a job describes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms
from privacy.update import split_tensors
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms

FEATURES = np.random.default_rng(1).uniform(-1, 1, (7, 4)).astype(np.float32)


def random_model(terms: ModelTerms) -> NDArray[np.float32]:
    return np.random.default_rng(2).normal(size=terms.parameters).astype(np.float32)


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("hidden", "outputs"), [((3,), 1), ((2,), 4), ((3, 5), 4)])
def test_a_mixture_is_its_experts_weighted_by_the_gate(hidden: tuple[int, ...], outputs: int) -> None:
    terms = model_terms("experts", 4, hidden, outputs)
    vector = random_model(terms)
    part = split_tensors(terms, vector)
    shares = softmax(FEATURES @ part["gate.weight"].T + part["gate.bias"])
    expected = np.zeros((7, outputs))
    for number in range(hidden[0]):
        name = f"expert{number + 1}"
        said = FEATURES @ part[f"{name}.layer1.weight"].T + part[f"{name}.layer1.bias"]
        if len(hidden) == 2:
            said = np.tanh(said) @ part[f"{name}.layer2.weight"].T + part[f"{name}.layer2.bias"]
        expected += shares[:, number : number + 1] * said
    scores = predict_scores(ADAPTERS["experts"], terms, vector, FEATURES).reshape(7, outputs)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_hypernetwork_writes_a_linear_model_from_the_embedding(outputs: int) -> None:
    terms = model_terms("hypernetwork", 4, (2,), outputs)
    vector = random_model(terms)
    part = split_tensors(terms, vector)
    written = (part["generator.weight"] @ part["embedding"] + part["generator.bias"]).reshape(outputs, 5)
    scores = predict_scores(ADAPTERS["hypernetwork"], terms, vector, FEATURES).reshape(7, outputs)
    np.testing.assert_allclose(scores, FEATURES @ written[:, :4].T + written[:, 4], atol=1e-5)


@pytest.mark.parametrize(
    ("adapter", "hidden"), [("experts", (3,)), ("experts", (2, 4)), ("hypernetwork", (2,))]
)
def test_first_weights_are_public_and_can_learn(adapter: str, hidden: tuple[int, ...]) -> None:
    terms = model_terms(adapter, 4, hidden, 1)
    module = build_model(ADAPTERS[adapter], terms, initial_vector(terms, 0))
    torch.autograd.backward(module(torch.from_numpy(FEATURES)).sum())
    moved = [name for name, one in module.named_parameters() if one.grad is not None and one.grad.any()]
    assert ("embedding" if adapter == "hypernetwork" else "gate.weight") in moved


@pytest.mark.parametrize(
    ("adapter", "hidden", "told"),
    [
        ("experts", (1,), "2 to 64 experts"),
        ("experts", (), "got \\[\\]"),
        ("hypernetwork", (2, 2), "one length"),
    ],
)
def test_sizes_that_are_none_are_told(adapter: str, hidden: tuple[int, ...], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        model_terms(adapter, 4, hidden, 1)
