"""The closed form of linear models gives the updates of the agent's own algorithms and engines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.ids import PartyId, SiloId
from privacy.plan import AlgorithmName, DpTerms, LocalTerms, TrainingTerms, VectorTerms
from sealsum.simulator.alone import LOCAL, train_alone
from sealsum.simulator.federation import Federation
from sealsum.simulator.linear import LINEAR, LINEAR_LOCAL, clipped_sum
from sealsum.simulator.plan import RoundTerms
from silo_agent.data.records import Records
from silo_agent.engines.loss import summed_loss
from silo_agent.models.adapters import ADAPTERS, build_model
from silo_agent.models.layouts import model_terms, outputs_for
from tests.algorithms_world import task as logistic_task

ADAPTER = ADAPTERS["logistic"]
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=24)


def records_of(classes: int, count: int = 60) -> Records:
    generator = np.random.default_rng(classes)
    features = generator.standard_normal((count, 5)).astype(np.float32)
    return Records(features, generator.integers(0, classes, count).astype(np.float32), classes=classes)


def start_of(classes: int) -> NDArray[np.float32]:
    size = outputs_for(classes) * 6
    return np.random.default_rng(9).standard_normal(size).astype(np.float32)


def by_record(records: Records, weights: NDArray[np.float32], clip: float) -> NDArray[np.float64]:
    """Autograd, one record at a time."""
    terms = model_terms("logistic", 5, (), records.logits)
    total = np.zeros(terms.parameters)
    for row in range(len(records)):
        module = build_model(ADAPTER, terms, weights)
        torch.autograd.backward(summed_loss(module, records, np.array([row])))
        gradient = np.concatenate([one.grad.numpy().ravel() for one in module.parameters()]).astype(float)  # type: ignore[union-attr]  # just made
        total += gradient * min(1.0, clip / np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("clip", [0.1, 1.0, 1e9])
def test_the_clipped_sum_is_the_sum_over_records_each_clipped(classes: int, clip: float) -> None:
    records, weights = records_of(classes), start_of(classes)
    got = clipped_sum(records, weights, np.arange(len(records)), clip)
    assert np.allclose(got, by_record(records, weights, clip), rtol=1e-4, atol=1e-4 * min(clip, 1.0))


def test_an_empty_sample_sums_to_nothing() -> None:
    assert not clipped_sum(records_of(3), start_of(3), np.arange(0), 1.0).any()


@pytest.mark.parametrize("algorithm", ["fedavg", "dp_fedavg", "dp_fedsgd"])
@pytest.mark.parametrize("classes", [2, 4])
def test_a_federation_of_linear_models_trains_to_the_same_weights(
    algorithm: AlgorithmName, classes: int
) -> None:
    training = TrainingTerms(
        algorithm=algorithm,
        local_steps=1 if algorithm == "dp_fedsgd" else 3,
        learning_rate=0.3,
        server_learning_rate=1.0,
    )
    dp = DpTerms(
        unit="record", sample_rate=1.0, noise_multiplier=1e-4, clip_l2=1.0, normaliser=60.0, delta=1e-5
    )
    terms = RoundTerms(
        model_terms("logistic", 5, (), outputs_for(classes)),
        training,
        None if algorithm == "fedavg" else dp,
        VECTOR,
    )
    silos = {SiloId(PartyId(name)): records_of(classes, 40 + size) for name, size in (("a", 0), ("b", 20))}
    real = Federation(terms, ADAPTER, silos, rounds=3)
    fast = replace(real, algorithms=LINEAR)
    assert np.allclose(real.train(start_of(classes)), fast.train(start_of(classes)), atol=1e-4)


@pytest.mark.parametrize("algorithm", ["fedavg", "dp_fedavg"])
def test_training_alone_is_the_algorithm_without_a_sum(algorithm: AlgorithmName) -> None:
    training = TrainingTerms(algorithm=algorithm, local_steps=2, learning_rate=0.5, server_learning_rate=1.0)
    dp = DpTerms(
        unit="record", sample_rate=1.0, noise_multiplier=1e-9, clip_l2=1e3, normaliser=60.0, delta=1e-5
    )
    terms = RoundTerms(model_terms("logistic", 5), training, None if algorithm == "fedavg" else dp, VECTOR)
    records = records_of(2)
    trained = train_alone(terms, ADAPTER, records, start_of(2), 4, LINEAR_LOCAL)
    assert np.allclose(trained, train_alone(terms, ADAPTER, records, start_of(2), 4, LOCAL), atol=1e-4)
    # Unclipped and without noise: eight plain steps.
    weights = start_of(2).astype(np.float64)
    for _ in range(8):
        weights -= 0.5 / 60 * clipped_sum(records, weights.astype(np.float32), np.arange(60), np.inf)
    assert np.allclose(trained, weights, atol=1e-3)


def test_what_has_no_closed_form_or_needs_others_is_refused() -> None:
    training = TrainingTerms(algorithm="fedavg", local_steps=1, learning_rate=0.5, server_learning_rate=1.0)
    terms = RoundTerms(model_terms("mlp", 5, (3,)), training, None, VECTOR)
    start = np.zeros(terms.model.parameters, dtype=np.float32)
    with pytest.raises(ConfigurationError, match="expected logistic"):
        train_alone(terms, ADAPTER, records_of(2), start, 1, LINEAR_LOCAL)
    shared = replace(terms, training=training.model_copy(update={"algorithm": "dp_fedsgd"}))
    with pytest.raises(ConfigurationError, match="expected fedavg or dp_fedavg, got dp_fedsgd"):
        train_alone(shared, ADAPTER, records_of(2), start, 1)


def test_a_sweep_refuses_terms_that_its_closed_form_does_not_know() -> None:
    training = TrainingTerms(
        algorithm="fedavg",
        local_steps=2,
        learning_rate=0.5,
        server_learning_rate=1.0,
        local=LocalTerms(proximal_mu=0.5),
    )
    with pytest.raises(ConfigurationError, match=r"training\.local: expected nothing for sweeps"):
        LINEAR["fedavg"](logistic_task(training))
