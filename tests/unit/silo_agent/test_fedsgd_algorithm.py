"""dp_fedsgd: the sum of all silos is central DP-SGD on all their records, however these are split."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from privacy.dp.integer_noise import IntegerMechanism, integer_mechanism
from privacy.plan import DpTerms, ModelTerms, TrainingTerms, VectorTerms
from privacy.secagg.encoding import UpdateOutOfRange, encode_steps
from silo_agent.algorithms import dp_fedsgd as algorithm
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, build_model
from silo_agent.models.layouts import initial_vector, model_terms

WIDTH = 6
MODELS = {"logistic": model_terms("logistic", WIDTH), "mlp": model_terms("mlp", WIDTH, [5])}
VECTOR = VectorTerms(coordinate_bound=64.0, scale_bits=20)
STEP = TrainingTerms(algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0)
QUIET = 1e-12
"""A sampling rate at which nobody is drawn."""


def terms(**changes: object) -> DpTerms:
    fields = {"sample_rate": 1.0, "noise_multiplier": 2.0, "clip_l2": 0.5, "normaliser": 20.0, "delta": 1e-5}
    return DpTerms.model_validate({"unit": "patient"} | fields | changes)


def records(count: int, seed: int = 1) -> Records:
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, WIDTH)).astype(np.float32)
    return Records(features, (random.random(count) > 0.5).astype(np.float32))


def some(everyone: Records, rows: NDArray[np.intp]) -> Records:
    return Records(everyone.features[rows], everyone.labels[rows])


def steps_of(model: ModelTerms, held: Records, dp: DpTerms) -> NDArray[np.float64]:
    """One silo's update, in steps of the grid."""
    start = initial_vector(model, 3)
    return dp_fedsgd(Task(model, STEP, dp, VECTOR, start, ADAPTERS[model.adapter], held)).steps


def mechanism_of(model: ModelTerms, dp: DpTerms) -> IntegerMechanism:
    return integer_mechanism(dp, STEP, VECTOR, model.parameters)


def pooled_clipped_sum(model: ModelTerms, everyone: Records, clip: float) -> NDArray[np.float64]:
    """Σ of per-record gradients by plain autograd in float64, each clipped: what a centre would compute."""
    module = build_model(ADAPTERS[model.adapter], model, initial_vector(model, 3)).double()
    total = np.zeros(model.parameters)
    for features, label in zip(everyone.features, everyone.labels, strict=True):
        module.zero_grad()
        logit = module(torch.from_numpy(features[None]).double()).squeeze()
        loss = nn.functional.binary_cross_entropy_with_logits(logit, torch.tensor(float(label)).double())
        torch.autograd.backward(loss)
        gradient = np.concatenate(
            [one.grad.numpy().ravel() for one in module.parameters() if one.grad is not None]
        )
        total += gradient * min(1.0, clip / float(np.linalg.norm(gradient)))
    return total


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "gaussian", lambda count, deviation: np.zeros(count))


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sizes", [(40,), (20, 20), (37, 1, 1, 1), (10, 10, 10, 10)])
def test_without_noise_the_sum_of_silos_is_the_clipped_sum_of_all_records_whatever_the_split(
    name: str, sizes: tuple[int, ...]
) -> None:
    model, everyone, dp = MODELS[name], records(40), terms()
    order = np.argsort(everyone.labels, kind="stable")  # the worst split: classes apart
    parts = np.split(order, np.cumsum(sizes)[:-1])
    summed = sum(steps_of(model, some(everyone, part), dp) for part in parts)
    mechanism = mechanism_of(model, dp)
    central = pooled_clipped_sum(model, everyone, mechanism.clip)
    # Each silo rounds once, by at most half a step.
    np.testing.assert_allclose(
        summed, -mechanism.steps_per_unit * central, rtol=1e-6, atol=0.5 * len(sizes) + 1e-3
    )


@settings(max_examples=15, deadline=None)
@given(owner=st.lists(st.integers(0, 3), min_size=24, max_size=24))
def test_any_assignment_of_records_to_silos_sums_to_the_same(owner: list[int]) -> None:
    model, everyone = MODELS["logistic"], records(24)
    # So little noise that it rounds to nothing.
    dp = terms(noise_multiplier=1e-9)
    owners = np.array(owner)
    parts = [np.flatnonzero(owners == silo) for silo in range(4)]
    summed = sum(steps_of(model, some(everyone, part), dp) for part in parts)
    np.testing.assert_allclose(summed, steps_of(model, everyone, dp), atol=2.5)


@pytest.mark.usefixtures("noiseless")
def test_one_record_moves_the_integers_by_at_most_the_clip_norm() -> None:
    model, everyone, dp = MODELS["mlp"], records(12), terms()
    mechanism = mechanism_of(model, dp)
    for left_out in range(12):
        fewer = some(everyone, np.delete(np.arange(12), left_out))
        moved = steps_of(model, everyone, dp) - steps_of(model, fewer, dp)
        assert np.linalg.norm(moved) <= mechanism.steps_per_unit * dp.clip_l2


@pytest.mark.parametrize("shares", [None, 1, 2, 5])
def test_an_empty_sample_sends_the_silos_noise_in_whole_steps(shares: int | None) -> None:
    model = MODELS["mlp"]
    dp = terms(sample_rate=QUIET, noise_shares=shares, model="local" if shares is None else "distributed")
    draws = np.concatenate([steps_of(model, records(3), dp) for _ in range(60)])
    assert np.array_equal(draws, np.rint(draws))
    deviation = mechanism_of(model, dp).steps_per_unit * 2.0 * 0.5 / np.sqrt(shares or 1)
    assert stats.kstest(draws, "norm", args=(0.0, deviation)).pvalue > 1e-6


def test_signal_and_noise_are_rounded_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rounding of their sum would let the noise's fraction meet the signal's: another mechanism."""
    drawn: list[NDArray[np.float64]] = []

    def gaussian(count: int, deviation: float) -> NDArray[np.float64]:
        drawn.append(np.full(count, 7.5 + 0.4))
        return drawn[-1]

    model, held, dp = MODELS["logistic"], records(9), terms()
    monkeypatch.setattr(algorithm, "gaussian", gaussian)
    noisy = steps_of(model, held, dp)
    monkeypatch.setattr(algorithm, "gaussian", lambda count, deviation: np.zeros(count))
    assert np.array_equal(noisy - steps_of(model, held, dp), np.full(model.parameters, 8.0))


def test_an_update_beyond_the_bound_is_refused_at_the_silo_and_never_wrapped() -> None:
    steps = np.array([0.0, VECTOR.coordinate_bound * 2.0**VECTOR.scale_bits])
    assert encode_steps(steps, VECTOR)[1] == 64 << 20
    for beyond in (steps + 1, -steps - 1, np.array([np.nan]), np.array([np.inf])):
        with pytest.raises(UpdateOutOfRange, match="beyond coordinate_bound"):
            encode_steps(beyond, VECTOR)
