"""DP-SGD claims: the mechanism is the one the ledger charged, and nothing else moves the weights."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from privacy.errors import ConfigurationError
from privacy.plan import DpTerms, ModelTerms, TensorSpec, TrainingTerms, VectorTerms
from silo_agent import randomness
from silo_agent.algorithms import dp_fedavg as algorithm
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, ModelAdapter, build_model
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.problems import Stopped
from silo_agent.randomness import gaussian, poisson_sample, uniforms

WIDTH = 5
LOGISTIC = model_terms("logistic", WIDTH)
MLP = model_terms("mlp", WIDTH, [7, 3])
ONE_STEP = TrainingTerms(algorithm="dp_fedavg", local_steps=1, learning_rate=1.0, server_learning_rate=1.0)


def _dp(**changes: float) -> DpTerms:
    fields = {"sample_rate": 1.0, "noise_multiplier": 1e-9, "clip_l2": 1.0, "normaliser": 1.0, "delta": 1e-5}
    return DpTerms(unit="patient", **{**fields, **changes})  # type: ignore[arg-type]  # all are floats


def _records(count: int, seed: int = 1, scale: float = 1.0) -> Records:
    random = np.random.default_rng(seed)
    features = (scale * random.normal(size=(count, WIDTH))).astype(np.float32)
    return Records(features, (random.random(count) > 0.5).astype(np.float32))


def _task(
    adapter: ModelAdapter,
    terms: ModelTerms,
    start: NDArray[np.float32],
    records: Records,
    dp: DpTerms | None,
    training: TrainingTerms = ONE_STEP,
    stopping: threading.Event | None = None,
) -> Task:
    vector = VectorTerms(coordinate_bound=4.0, scale_bits=20)
    return Task(terms, training, dp, vector, start, adapter, records, stopping)


def _update(terms: ModelTerms, records: Records, dp: DpTerms) -> NDArray[np.float64]:
    start = initial_vector(terms, 3)
    return dp_fedavg(_task(ADAPTERS[terms.adapter], terms, start, records, dp)).values.astype(np.float64)


@pytest.mark.parametrize("terms", [LOGISTIC, MLP], ids=["logistic", "mlp"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_adding_one_record_moves_the_clipped_sum_by_at_most_c(terms: ModelTerms, scale: float) -> None:
    many = _records(9, scale=scale)
    for left_out in range(9):
        kept = [row for row in range(9) if row != left_out]
        fewer = Records(many.features[kept], many.labels[kept])
        moved = _update(terms, many, _dp()) - _update(terms, fewer, _dp())
        assert np.linalg.norm(moved) <= 1.0 + 1e-5


@pytest.mark.parametrize("width", [10_000, 1_000_000])
def test_a_record_of_a_large_model_is_clipped_to_c_too(width: int) -> None:
    """A float32 sum of squares comes out short there (0.05 % at 10^6), so that the record would exceed C."""
    terms = model_terms("logistic", width)
    one = Records(np.full((1, width), 0.6, dtype=np.float32), np.ones(1, dtype=np.float32))
    start = np.zeros(terms.parameters, dtype=np.float32)
    dp = _dp(noise_multiplier=1e-12)
    moved = dp_fedavg(_task(ADAPTERS["logistic"], terms, start, one, dp)).values
    assert np.linalg.norm(moved.astype(np.float64)) <= 1.0 + 1e-6


@pytest.mark.parametrize("terms", [LOGISTIC, MLP], ids=["logistic", "mlp"])
def test_the_step_is_the_clipped_sum_that_plain_autograd_gives(terms: ModelTerms) -> None:
    records = _records(12, scale=3.0)
    module = build_model(ADAPTERS[terms.adapter], terms, initial_vector(terms, 3)).double()
    total = np.zeros(terms.parameters)
    for row in range(12):
        module.zero_grad()
        logit = module(torch.from_numpy(records.features[row : row + 1]).double()).squeeze(-1)
        label = torch.from_numpy(records.labels[row : row + 1]).double()
        nn.functional.binary_cross_entropy_with_logits(logit, label, reduction="sum").backward()  # type: ignore[no-untyped-call]  # torch
        gradients = [one.grad.numpy().ravel() for one in module.parameters() if one.grad is not None]
        gradient = np.concatenate(gradients)
        total += gradient * min(1.0, 1.0 / np.linalg.norm(gradient))
    np.testing.assert_allclose(_update(terms, records, _dp()), -total, atol=1e-4)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_record_without_a_finite_gradient_adds_zero(poison: float) -> None:
    records = _records(6)
    records.features[2, 1] = poison
    kept = [0, 1, 3, 4, 5]
    clean = Records(records.features[kept], records.labels[kept])
    np.testing.assert_allclose(_update(LOGISTIC, records, _dp()), _update(LOGISTIC, clean, _dp()), atol=1e-5)


def test_an_empty_sample_still_adds_noise_and_takes_the_step() -> None:
    dp = _dp(sample_rate=1e-12, noise_multiplier=1.0)
    assert np.all(_update(LOGISTIC, _records(6), dp) != 0.0)


def test_the_divisor_is_public_and_the_same_for_one_more_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "gaussian", lambda count, deviation: np.full(count, deviation))
    empty = {"sample_rate": 1e-12, "noise_multiplier": 3.0, "normaliser": 50.0}
    for count in (256, 257):
        update = _update(LOGISTIC, _records(count), _dp(**empty))
        np.testing.assert_allclose(update, -3.0 / 50.0, rtol=1e-6)


def test_the_noise_has_the_deviation_that_was_charged() -> None:
    dp = _dp(sample_rate=1e-12, noise_multiplier=2.0, clip_l2=0.5, normaliser=4.0)
    draws = np.concatenate([_update(LOGISTIC, _records(2), dp) for _ in range(300)])
    assert stats.kstest(draws, "norm", args=(0.0, 2.0 * 0.5 / 4.0)).pvalue > 1e-6


def test_a_torch_or_numpy_seed_moves_neither_noise_nor_sampling() -> None:
    def seeded(draw: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        torch.manual_seed(0)
        np.random.seed(0)
        return draw()

    noisy = _dp(sample_rate=1e-12, noise_multiplier=1.0)
    sampled = _dp(sample_rate=0.5)
    records = _records(64)
    for dp in (noisy, sampled):
        first, second = (seeded(lambda dp=dp: _update(LOGISTIC, records, dp)) for _ in range(2))  # type: ignore[misc]
        assert np.any(first != second)


def test_poisson_sampling_includes_each_record_and_each_pair_at_its_rate() -> None:
    rate, population, draws = 0.3, 12, 20_000
    included = np.zeros((draws, population), dtype=bool)
    for draw in range(draws):
        included[draw, poisson_sample(population, rate)] = True
    # Six standard errors: a false alarm in 10^8 comparisons.
    assert np.all(np.abs(included.mean(0) - rate) < 6 * np.sqrt(rate * (1 - rate) / draws))
    pairs = (included.T.astype(float) @ included) / draws
    off_diagonal = pairs[~np.eye(population, dtype=bool)]
    assert np.all(np.abs(off_diagonal - rate**2) < 6 * np.sqrt(rate**2 * (1 - rate**2) / draws))


def test_rate_one_takes_every_record_and_uniforms_never_touch_their_ends() -> None:
    assert list(poisson_sample(50, 1.0)) == list(range(50))
    draws = uniforms(1_000_000)
    assert draws.min() > 0.0
    assert draws.max() < 1.0
    assert stats.kstest(draws[:100_000], "uniform").pvalue > 1e-6


def test_the_extreme_cells_of_the_uniform_grid_give_finite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in (0, 0xFFFFFFFF):
        monkeypatch.setattr(randomness, "keystream", lambda key, start, n, w=word: np.full(n, w, dtype="<u4"))
        assert np.all(np.isfinite(gaussian(4, 1.0)))


class _Normalised:
    """An adapter with a batch statistic, which couples records."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return terms.layout

    def build(self, terms: ModelTerms) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(terms.inputs), nn.Linear(terms.inputs, 1))


def test_a_model_with_batch_statistics_is_refused() -> None:
    layout = tuple(
        TensorSpec(name=name, shape=shape)
        for name, shape in [("0.weight", (5,)), ("0.bias", (5,)), ("1.weight", (1, 5)), ("1.bias", (1,))]
    )
    terms = ModelTerms(adapter="normalised", inputs=WIDTH, layout=layout)
    start = np.zeros(terms.parameters, dtype=np.float32)
    with pytest.raises(ConfigurationError, match="cannot be trained privately"):
        dp_fedavg(_task(_Normalised(), terms, start, _records(8), _dp()))


def test_training_stops_between_two_steps_when_told() -> None:
    stopping = threading.Event()
    stopping.set()
    start = initial_vector(LOGISTIC, 0)
    with pytest.raises(Stopped):
        dp_fedavg(_task(ADAPTERS["logistic"], LOGISTIC, start, _records(8), _dp(), stopping=stopping))


def test_training_without_dp_lowers_the_loss() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(200, WIDTH)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.float32)
    terms = TrainingTerms(algorithm="fedavg", local_steps=200, learning_rate=1.0, server_learning_rate=1.0)
    start = initial_vector(LOGISTIC, 0)
    records = Records(features, labels)
    update = fedavg(_task(ADAPTERS["logistic"], LOGISTIC, start, records, None, terms)).values
    scores = features @ update[:WIDTH] + update[WIDTH]
    assert np.mean((scores > 0) == (labels > 0)) > 0.97
