"""Own parts in the loop: zero in the update, kept at the silo, put back; each against plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import PartyId, SiloId
from privacy.personal_terms import PersonalTerms
from privacy.plan import DpTerms, ModelTerms, ServerTerms, TensorSpec, TrainingTerms, VectorTerms
from sealsum.simulator.federation import Federation, Standing
from sealsum.simulator.plan import RoundTerms
from silo_agent.algorithms.catalogue import update_of
from silo_agent.algorithms.memory import FIRST, Memory
from silo_agent.algorithms.own_parts import DITTO, OWN, coordinates_of, in_place
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.problems import Diverged
from silo_agent.update import FloatUpdate, GridUpdate

MLP = model_terms("mlp", 3, (4,))
LOGISTIC = model_terms("logistic", 3)
VECTOR = VectorTerms(coordinate_bound=16.0, scale_bits=24)
NAMES = [SiloId(PartyId(f"silo-{number}")) for number in (1, 2, 3)]
HEAD = PersonalTerms(kind="fedper", local_param=("last",))
INTERCEPT = PersonalTerms(kind="fedper", local_param=("intercept",))
BESIDE = PersonalTerms(kind="ditto", regular_weight=0.5, learning_rate=0.2, steps=4)


class Normalised:
    """A hidden layer behind a normalisation."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return terms.layout

    def build(self, terms: ModelTerms) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))


NORMALISED = ModelTerms(
    adapter="normalised",
    inputs=3,
    layout=tuple(
        TensorSpec(name=name, shape=shape)
        for name, shape in [
            ("0.weight", (2, 3)),
            ("0.bias", (2,)),
            ("1.weight", (2,)),
            ("1.bias", (2,)),
            ("2.weight", (1, 2)),
            ("2.bias", (1,)),
        ]
    ),
)


def records(seed: int, count: int = 20) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.uniform(-1, 1, (count, 3)).astype(np.float32)
    labels = (features[:, 0] + 0.5 * seed > generator.normal(size=count)).astype(np.float32)
    return Records(features, labels, tuple(f"p{number}" for number in range(count)))


def training(personal: PersonalTerms | None, **changes: Any) -> TrainingTerms:
    said: dict[str, Any] = {
        "algorithm": "fedavg",
        "local_steps": 3,
        "learning_rate": 0.3,
        "server_learning_rate": 1.0,
        "personal": personal,
    }
    return TrainingTerms(**(said | changes))


def task(
    terms: ModelTerms, personal: PersonalTerms | None, start: NDArray[np.float32], **changes: Any
) -> Task:
    said: dict[str, Any] = {
        "model": terms,
        "training": training(personal),
        "dp": None,
        "vector": VECTOR,
        "start": start,
        "adapter": ADAPTERS[terms.adapter] if terms.adapter in ADAPTERS else Normalised(),
        "records": records(1),
    }
    return Task(**(said | changes))


def updated(one: Task) -> FloatUpdate:
    update = update_of(one)
    assert isinstance(update, FloatUpdate)
    return update


def remembered(update: FloatUpdate) -> Memory:
    return Memory(update.keep, 1)


def federation(terms: ModelTerms, personal: PersonalTerms | None, **changes: Any) -> Federation:
    said = RoundTerms(terms, training(personal, **changes), None, VECTOR)
    silos = {name: records(number) for number, name in enumerate(NAMES)}
    return Federation(said, ADAPTERS[terms.adapter], silos, 20)


def rounds(run: Federation, standing: Standing, count: int, dropped: Sequence[SiloId] = ()) -> Standing:
    for _ in range(count):
        standing = run.after_round(standing, dropped)
    return standing


# --- parts that stay ---


def test_what_stays_is_exactly_zero_and_the_rest_is_plain_descent() -> None:
    """The update of the shared part is that of training both from the silo's own parts."""
    start = initial_vector(MLP, 3)
    first = updated(task(MLP, HEAD, start))
    plain = updated(task(MLP, None, start))
    assert not first.values[16:].any()
    assert np.array_equal(first.values[:16], plain.values[:16])
    assert np.array_equal(first.keep[OWN], (start + plain.values)[16:])
    later = updated(task(MLP, HEAD, start, memory=remembered(first)))
    both = np.concatenate([start[:16], first.keep[OWN]])
    from_both = updated(task(MLP, None, both))
    assert np.array_equal(later.values[:16], from_both.values[:16])
    assert not later.values[16:].any()


def test_the_server_leaves_own_parts_at_their_public_first_values() -> None:
    for optimizer in ("sgd", "adam", "yogi"):
        momentum = 0.9 if optimizer == "sgd" else 0.0
        run = federation(MLP, HEAD, server=ServerTerms(optimizer=optimizer, momentum=momentum, ema_decay=0.5))
        start = initial_vector(MLP, 3)
        standing = rounds(run, run.at(start), 5)
        assert np.array_equal(standing.model[16:], start[16:])
        assert not np.array_equal(standing.model[:16], start[:16])


def test_a_silo_that_dropped_out_keeps_what_it_had() -> None:
    run = federation(LOGISTIC, INTERCEPT)
    standing = rounds(run, run.at(initial_vector(LOGISTIC, 0)), 2)
    before = standing.memories[NAMES[0]].arrays[OWN]
    after = rounds(run, standing, 1, dropped=[NAMES[0]])
    assert np.array_equal(after.memories[NAMES[0]].arrays[OWN], before)
    assert not np.array_equal(after.memories[NAMES[1]].arrays[OWN], standing.memories[NAMES[1]].arrays[OWN])


def test_silos_with_other_base_rates_learn_other_intercepts() -> None:
    run = federation(LOGISTIC, INTERCEPT)
    standing = rounds(run, run.at(initial_vector(LOGISTIC, 0)), 20)
    own = [float(standing.memories[name].arrays[OWN][0]) for name in NAMES]
    assert own == sorted(own)
    assert own[2] - own[0] > 0.5


def test_a_memory_of_another_model_is_an_error_of_ours() -> None:
    mine = coordinates_of(ADAPTERS["mlp"], MLP, HEAD)
    with pytest.raises(SealsumError, match="expected 5 values, got 4"):
        in_place(initial_vector(MLP, 0), {OWN: np.zeros(4, dtype=np.float32)}, mine)


# --- normalisation ---


def test_fedbn_keeps_exactly_the_normalisation_layers() -> None:
    mine = coordinates_of(Normalised(), NORMALISED, PersonalTerms(kind="fedbn"))
    assert np.flatnonzero(mine).tolist() == [8, 9, 10, 11]
    start = np.random.default_rng(0).normal(size=15).astype(np.float32)
    update = updated(task(NORMALISED, PersonalTerms(kind="fedbn"), start))
    assert not update.values[8:12].any()
    assert update.values[:8].any()
    assert update.keep[OWN].shape == (4,)


def test_fedbn_of_a_model_that_normalises_nothing_is_told() -> None:
    with pytest.raises(ConfigurationError, match="expected a model with normalisation layers with fedbn"):
        update_of(task(MLP, PersonalTerms(kind="fedbn"), initial_vector(MLP, 0)))


# --- mixed intervals ---


def test_layers_of_an_interval_are_summed_in_its_last_round_and_carry_all_its_steps() -> None:
    personal = PersonalTerms(kind="mixed_intervals", local_param=("last",), every=2)
    start = initial_vector(MLP, 3)
    first = updated(task(MLP, personal, start, round=1))
    assert not first.values[16:].any()
    second = updated(task(MLP, personal, start, round=2, memory=remembered(first)))
    both = np.concatenate([start[:16], first.keep[OWN]])
    plain = updated(task(MLP, None, both))
    np.testing.assert_allclose(second.values[16:], (both + plain.values - start)[16:], atol=1e-7)
    assert len(second.keep[OWN]) == 0
    third = updated(task(MLP, personal, start, round=3, memory=remembered(second)))
    assert np.array_equal(third.values[:16], first.values[:16])


# --- ditto ---


def test_dittos_own_model_is_drawn_to_the_shared_one_and_leaves_the_update_alone() -> None:
    start = initial_vector(LOGISTIC, 0) + np.float32(0.5)
    update = updated(task(LOGISTIC, BESIDE, start))
    assert np.array_equal(update.values, updated(task(LOGISTIC, None, start)).values)
    given = records(1)
    rows = np.column_stack([given.features, np.ones(len(given))]).astype(np.float64)
    own = start.astype(np.float64)
    for _ in range(4):
        chance = 1 / (1 + np.exp(-rows @ own))
        own -= 0.2 * (rows.T @ (chance - given.labels) / len(given) + 0.5 * (own - start))
    np.testing.assert_allclose(update.keep[DITTO], own, atol=1e-5)


def test_under_dp_ditto_trains_beside_the_private_step() -> None:
    dp = DpTerms(
        unit="record",
        sample_rate=1.0,
        noise_multiplier=1.0,
        clip_l2=1.0,
        normaliser=20.0,
        delta=1e-5,
    )
    private = TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0, personal=BESIDE
    )
    update = update_of(task(LOGISTIC, BESIDE, initial_vector(LOGISTIC, 0), training=private, dp=dp))
    assert isinstance(update, GridUpdate)
    assert update.keep[DITTO].shape == (4,)
    plain = updated(task(LOGISTIC, BESIDE, initial_vector(LOGISTIC, 0)))
    assert np.array_equal(update.keep[DITTO], plain.keep[DITTO])


def test_under_dp_dittos_own_model_that_diverges_keeps_no_silo_out_of_the_round() -> None:
    """Whether it does depends on single records: here on one whose feature is huge."""
    wild = PersonalTerms(kind="ditto", regular_weight=0.5, learning_rate=1e6, steps=50)
    dp = DpTerms(
        unit="record", sample_rate=1.0, noise_multiplier=1.0, clip_l2=1.0, normaliser=20.0, delta=1e-5
    )
    private = TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0, personal=wild
    )
    start = initial_vector(LOGISTIC, 0)
    with pytest.raises(Diverged):
        update_of(task(LOGISTIC, wild, start))
    update = update_of(task(LOGISTIC, wild, start, training=private, dp=dp))
    assert isinstance(update, GridUpdate)
    assert np.array_equal(update.keep[DITTO], start)
    before = Memory({DITTO: start + np.float32(1)}, 1)
    again = update_of(task(LOGISTIC, wild, start, training=private, dp=dp, memory=before))
    assert isinstance(again, GridUpdate)
    assert np.array_equal(again.keep[DITTO], before.arrays[DITTO])


# --- per-fedavg ---


def test_per_fedavg_moves_along_the_gradient_one_step_ahead() -> None:
    """With both batches alike the draw does not matter, and the step can be written out."""
    half = records(1, 8)
    twice = Records(np.repeat(half.features[:1], 8, axis=0), np.repeat(half.labels[:1], 8), half.patients)
    personal = PersonalTerms(kind="per_fedavg", learning_rate=0.4)
    start = np.array([0.3, -0.2, 0.1, 0.5], dtype=np.float32)
    one = task(LOGISTIC, personal, start, records=twice, training=training(personal, local_steps=1))
    row = np.append(twice.features[0], 1).astype(np.float64)

    def gradient(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = row * (1 / (1 + np.exp(-row @ weights)) - twice.labels[0])
        return found

    ahead = start - 0.4 * gradient(start.astype(np.float64))
    np.testing.assert_allclose(updated(one).values, -0.3 * gradient(ahead), atol=1e-6)


def test_without_memory_a_silo_starts_from_public_values() -> None:
    start = initial_vector(MLP, 3)
    assert np.array_equal(in_place(start, FIRST.arrays, coordinates_of(ADAPTERS["mlp"], MLP, HEAD)), start)
