"""A simulated round is the real one: the same algorithms, the same sum, the same server step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privacy.errors import Unprocessable
from privacy.ids import PartyId, SiloId
from privacy.plan import DpTerms, ServerTerms, TrainingTerms, VectorTerms
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.sums import secure_ring_sum
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import initial_vector, model_terms

SILOS = tuple(SiloId(PartyId(name)) for name in ("a", "b", "c", "d"))
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=24)
MODEL = model_terms("logistic", 5)
FEDAVG = TrainingTerms(algorithm="fedavg", local_steps=3, learning_rate=0.5, server_learning_rate=1.0)


def federation(training: TrainingTerms, dp: DpTerms | None = None) -> Federation:
    generator = np.random.default_rng(1)
    truth = generator.standard_normal(5)
    silos = {}
    for number, silo in enumerate(SILOS):
        features = generator.uniform(-1, 1, (40 + 10 * number, 5)).astype(np.float32)
        silos[silo] = Records(features, (features @ truth > 0).astype(np.float32))
    return Federation(RoundTerms(MODEL, training, dp, VECTOR), ADAPTERS["logistic"], silos)


def private(**changes: object) -> DpTerms:
    terms = {
        "unit": "patient",
        "sample_rate": 1.0,
        "noise_multiplier": 1e-4,
        "clip_l2": 1.0,
        "normaliser": 55.0,
        "delta": 1e-5,
    }
    return DpTerms.model_validate({**terms, **changes})


def test_fedavg_by_the_secure_sum_is_the_mean_of_the_silos_models() -> None:
    world = replace(federation(FEDAVG), add=secure_ring_sum)
    start = initial_vector(MODEL, 0)
    alone = [world.update_of(silo, start).values for silo in SILOS]  # type: ignore[union-attr]  # fedavg's are float
    assert np.allclose(world.train(start), start + np.mean(alone, axis=0), atol=1e-6)


def test_weights_by_examples_weigh_each_record_the_same() -> None:
    training = FEDAVG.model_copy(update={"weights": "examples", "weight_cap": 100, "local_steps": 1})
    world = replace(federation(training), add=secure_ring_sum)
    everyone = Records(
        np.concatenate([records.features for records in world.silos.values()]),
        np.concatenate([records.labels for records in world.silos.values()]),
    )
    pooled = replace(world, silos={SILOS[0]: everyone})
    start = initial_vector(MODEL, 0)
    step = pooled.update_of(SILOS[0], start).values  # type: ignore[union-attr]  # fedavg's are float
    assert np.allclose(world.train(start), start + step, atol=1e-6)


@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_dp_fedsgd_hardly_noised_is_one_clipped_step_over_all_records(noise: str) -> None:
    shares = {"model": "distributed", "noise_shares": 3} if noise == "distributed" else {}
    training = TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0
    )
    world = federation(training, private(**shares))
    start = initial_vector(MODEL, 0)
    # Logistic at zero: g = (1/2 − y)·[x, 1], clipped to 1.
    total = np.zeros(6)
    for records in world.silos.values():
        rows = np.hstack([records.features, np.ones((len(records), 1))]).astype(np.float64)
        gradients = (0.5 - records.labels)[:, None] * rows
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        total += (gradients / np.maximum(norms, 1.0)).sum(0)
    expected = start - total / (4 * 55.0)
    for add in (world.add, secure_ring_sum):
        assert np.allclose(replace(world, add=add).train(start), expected, atol=1e-4)


def test_a_job_of_several_rounds_learns() -> None:
    training = TrainingTerms(
        algorithm="dp_fedavg", local_steps=5, learning_rate=2.0, server_learning_rate=1.0
    )
    world = federation(training, private(noise_multiplier=0.5, sample_rate=0.5, normaliser=30.0))
    model = replace(world, rounds=20).train(initial_vector(MODEL, 0))
    everyone = np.concatenate([records.features for records in world.silos.values()])
    labels = np.concatenate([records.labels for records in world.silos.values()])
    assert np.mean((everyone @ model[:5] + model[5] > 0) == labels) > 0.9


def test_a_tail_average_is_the_mean_of_the_last_models() -> None:
    plain = replace(federation(FEDAVG), rounds=5)
    training = FEDAVG.model_copy(update={"server": ServerTerms(tail_rounds=2)})
    tailed = replace(plain, terms=replace(plain.terms, training=training))
    standing = plain.at(initial_vector(MODEL, 0))
    models = []
    for _ in range(5):
        standing = plain.after_round(standing)
        models.append(standing.model)
    expected = np.mean(models[-2:], axis=0)
    assert np.allclose(tailed.train(initial_vector(MODEL, 0)), expected, atol=1e-5)


def test_a_round_without_enough_silos_opens_nothing() -> None:
    world = federation(FEDAVG)
    with pytest.raises(Unprocessable, match="expected 2 or more, got 1"):
        world.after_round(world.at(initial_vector(MODEL, 0)), dropped=SILOS[1:])
