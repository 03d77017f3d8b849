"""What training metrics cost beside a gradient, what they say, and who computes the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import norm
from sealsum_verify.records import charged_noise
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent, fallback_event, round_event
from privacy.dp.metrics import metrics_mechanism, read_metrics
from privacy.errors import Unprocessable
from privacy.plan import DpTerms, TrainingTerms, ValidityClaim, VectorTerms
from privacy.vector_terms import MetricTerms, check_further
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.metrics import unit_metrics
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, build_model
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.update import GridUpdate
from tests.federation import Federation
from tests.vectors_world import CONTROL, METRICS_VECTOR, STATISTICS

STEP = TrainingTerms(algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0)
BOTH = MetricTerms(names=("accuracy", "loss"), noise_multiplier=6.0, loss_cap=2.0)
TERMS = METRICS_VECTOR.terms
NOISE = st.floats(min_value=0.3, max_value=200.0)


def _dp(**changes: object) -> DpTerms:
    fields: dict[str, object] = {
        "unit": "record",
        "sample_rate": 0.1,
        "noise_multiplier": 3.0,
        "clip_l2": 1.0,
        "normaliser": 20.0,
        "delta": 1e-5,
        "metrics": BOTH,
    }
    return DpTerms.model_validate(fields | changes)


# --- what they cost ---


def _hockey_stick(first: float, second: float, rate: float, bound: float) -> float:
    """δ(ε) of both Gaussians on one Poisson sample, by summing over the plane, not along one axis."""
    axis = np.linspace(-12, 12, 1201)
    cell = (axis[1] - axis[0]) ** 2
    x, y = np.meshgrid(axis, axis)
    without = norm.pdf(x) * norm.pdf(y)
    sampled = (1 - rate) * without + rate * norm.pdf(x - 1 / first) * norm.pdf(y - 1 / second)
    e = math.exp(bound)
    return float(
        max((np.maximum(p - e * q, 0)).sum() * cell for p, q in ((sampled, without), (without, sampled)))
    )


@pytest.mark.parametrize(("first", "second", "rate"), [(1.5, 2.0, 0.3), (0.8, 4.0, 0.1), (2.0, 2.0, 1.0)])
def test_gradient_and_metrics_of_one_sample_are_the_one_mechanism_that_is_charged(
    first: float, second: float, rate: float
) -> None:
    metrics = MetricTerms(names=("accuracy",), noise_multiplier=second)
    event = round_event(_dp(noise_multiplier=first, sample_rate=rate, metrics=metrics), STEP)
    delta = 1e-3
    charged = epsilon([event], delta)
    assert _hockey_stick(first, second, rate, charged) <= delta * (1 + 1e-3)
    # Not more is charged than the pair costs: by a hundredth less it would not hold.
    assert _hockey_stick(first, second, rate, charged * 0.98) > delta


@given(first=NOISE, second=NOISE)
def test_the_charged_noise_is_below_both_and_the_verifier_gets_the_very_number(
    first: float, second: float
) -> None:
    dp = _dp(noise_multiplier=first, metrics=MetricTerms(names=("accuracy",), noise_multiplier=second))
    charged = dp.charged_noise_multiplier
    assert charged < min(first, second)
    assert charged == pytest.approx((first**-2 + second**-2) ** -0.5, rel=1e-12)
    assert charged_noise(dp.model_dump(mode="json")) == repr(charged)


def test_without_metrics_the_charge_is_the_gradients() -> None:
    dp = _dp(metrics=None)
    assert round_event(dp, STEP) == DpEvent(sample_rate=0.1, noise_multiplier=3.0, steps=1)
    assert charged_noise(dp.model_dump(mode="json")) == "3.0"
    assert "metrics" not in dp.model_dump(mode="json")


def test_with_shared_noise_the_fallback_is_charged_for_the_metrics_too() -> None:
    dp = _dp(model="distributed", noise_shares=4)
    fallback = fallback_event(dp, STEP)
    assert fallback is not None
    assert fallback.noise_multiplier == dp.charged_noise_multiplier / 2
    assert metrics_mechanism(dp, BOTH, TERMS).deviation == 2.0**14 * 6.0 / 2


# --- what they say ---


def _records(count: int, classes: int = 2, seed: int = 1) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.normal(0, 2, (count, 3)).astype(np.float32)
    return Records(features, generator.integers(0, classes, count).astype(np.float32), classes=classes)


def _task(records: Records, dp: DpTerms) -> Task:
    terms = model_terms("logistic", 3)
    return Task(
        terms, STEP, dp, VectorTerms(coordinate_bound=64.0, scale_bits=12), initial_vector(terms, 7),
        ADAPTERS["logistic"], records, further=(METRICS_VECTOR,),
    )  # fmt: skip


def test_with_no_noise_to_speak_of_the_means_are_those_of_plain_torch() -> None:
    records = _records(250)
    quiet = BOTH.model_copy(update={"noise_multiplier": 1e-9})
    dp = _dp(sample_rate=1.0, metrics=quiet)
    task = _task(records, dp)
    update = dp_fedsgd(task)
    metrics = update.further["metrics"]  # type: ignore[index]  # a vector's name
    assert isinstance(metrics, GridUpdate)
    assert np.array_equal(metrics.steps, np.rint(metrics.steps))
    found = read_metrics(dp, TERMS, tuple(metrics.steps / 2.0**14), 1)
    assert found is not None
    logits = build_model(task.adapter, task.model, task.start)(torch.from_numpy(records.features)).squeeze(-1)
    labels = torch.from_numpy(records.labels)
    losses = binary_cross_entropy_with_logits(logits, labels, reduction="none").clamp(max=2.0)
    assert found["loss"] == pytest.approx(losses.mean().item(), abs=1e-3)
    assert found["accuracy"] == pytest.approx(((logits > 0) == (labels > 0)).double().mean().item(), abs=1e-3)


def test_several_classes_are_measured_by_their_own_loss() -> None:
    records = _records(40, classes=3)
    module = torch.nn.Linear(3, 3)
    metrics = unit_metrics(module, records, np.arange(40), BOTH)
    logits, labels = module(torch.from_numpy(records.features)), torch.from_numpy(records.labels).long()
    losses = cross_entropy(logits, labels, reduction="none").clamp(max=2.0) / 2.0
    np.testing.assert_allclose(metrics[:, 1], losses.detach().numpy(), atol=1e-6)
    np.testing.assert_array_equal(metrics[:, 0], (logits.argmax(-1) == labels).numpy())


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 3e38])
def test_a_unit_stays_within_its_bound_whatever_its_records_are(poison: float) -> None:
    records = _records(30)
    records.features[4] = poison
    terms = model_terms("logistic", 3)
    module = build_model(ADAPTERS["logistic"], terms, initial_vector(terms, 7))
    metrics = unit_metrics(module, records, np.arange(30), BOTH)
    assert np.all((metrics >= 0) & (metrics <= 1))
    assert np.all(np.linalg.norm(metrics / math.sqrt(3), axis=1) <= 1.0)


def test_a_unit_of_many_records_counts_once() -> None:
    features, labels = np.ones((6, 3), dtype=np.float32), np.array([1, 1, 0, 1, 1, 1], dtype=np.float32)
    records = Records(features, labels, units=np.array([0, 0, 0, 0, 1, 1]))
    module = build_model(ADAPTERS["logistic"], model_terms("logistic", 3), np.full(4, 0.1, dtype=np.float32))
    metrics = unit_metrics(module, records, np.array([0, 1]), BOTH)
    assert sorted(metrics[:, 0].tolist()) == [0.75, 1.0]
    assert metrics[:, 2].tolist() == [1.0, 1.0]


def test_an_empty_sample_is_noise_alone() -> None:
    for records in (_records(0), _records(5)):
        assert unit_metrics(torch.nn.Linear(3, 1), records, np.arange(0), BOTH).shape == (0, 3)
    units = Records(records.features, records.labels, units=np.array([0, 0, 1, 1, 1]))
    assert unit_metrics(torch.nn.Linear(3, 1), units, np.arange(0), BOTH).shape == (0, 3)


def test_adding_one_unit_moves_the_integers_by_at_most_the_sensitivity() -> None:
    records, dp = _records(9), _dp()
    mechanism = metrics_mechanism(dp, BOTH, VectorTerms(coordinate_bound=8.0, scale_bits=5))
    module = torch.nn.Linear(3, 1)

    def integers(rows: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        total = unit_metrics(module, records, np.array(rows, dtype=np.intp), BOTH).sum(axis=0)
        return np.rint(mechanism.steps_per_unit * mechanism.clip / math.sqrt(3) * total)

    for left_out in range(9):
        moved = integers(list(range(9))) - integers([row for row in range(9) if row != left_out])
        assert np.linalg.norm(moved) <= mechanism.steps_per_unit


def test_a_count_below_its_noise_is_not_divided_by() -> None:
    dp = _dp()
    assert read_metrics(dp, TERMS, (1.0, 1.0, 6.0 * 2 * 4), 4) is None
    assert read_metrics(dp, TERMS, (25.0, 25.0, 50.0), 4) == {"accuracy": 0.5, "loss": 1.0}
    with pytest.raises(Unprocessable, match="expected 3 sums, got 2"):
        read_metrics(dp, TERMS, (1.0, 2.0), 4)


# --- which terms are terms ---


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"names": ("loss", "accuracy")}, "sorted"),
        ({"names": ("loss", "loss")}, "distinct"),
        ({"names": ("accuracy",)}, "loss_cap"),
        ({"loss_cap": None}, "loss_cap"),
        ({"names": ("auc",)}, "accuracy"),
    ],
)
def test_metrics_of_another_form_are_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        MetricTerms.model_validate(BOTH.model_dump() | changes)


@pytest.mark.parametrize(
    ("further", "metrics", "scheme", "proven", "reason"),
    [
        ((CONTROL, CONTROL), None, "additive", False, "distinct"),
        ((CONTROL.model_copy(update={"name": "model"}),), None, "additive", False, "not the model's"),
        ((CONTROL,), None, "threshold_bfv", False, "expected none with threshold_bfv"),
        ((STATISTICS,), None, "threshold_ckks", False, "expected none with threshold_ckks"),
        ((CONTROL,), None, "additive", True, "expected none with validity"),
        ((), BOTH, "additive", False, "expected a vector metrics"),
        ((METRICS_VECTOR,), None, "additive", False, "only with it"),
        ((METRICS_VECTOR.model_copy(update={"coordinates": 2}),), BOTH, "additive", False, "3 coordinates"),
        ((METRICS_VECTOR.model_copy(update={"opens_to": "mean"}),), BOTH, "additive", False, "open to a sum"),
    ],
)
def test_vectors_that_no_round_can_sum_are_refused_by_name(
    further: tuple[object, ...], metrics: MetricTerms | None, scheme: str, proven: bool, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        check_further(further, metrics, scheme, proven)  # type: ignore[arg-type]


def test_a_job_says_so_before_it_is_signed() -> None:
    federation = Federation()
    with pytest.raises(ValidationError, match="expected none with threshold_bfv"):
        federation.job_spec(scheme="threshold_bfv", further=(CONTROL,))
    with pytest.raises(ValidationError, match="expected none with validity"):
        federation.job_spec(validity=ValidityClaim(norm_bound=1.0), further=(CONTROL,))
    with pytest.raises(ValidationError, match="they come with dp_fedsgd only"):
        federation.job_spec(dp=_dp(unit="patient"), further=(METRICS_VECTOR,))
