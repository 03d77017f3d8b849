"""Evaluations of numbers, masks, survival times: the plain figure without noise, an honest error with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.labels import AnyLabel, ClassLabel, MaskLabel, RealLabel, SurvivalLabel
from privacy.measures import concordance, dice, f1, mae, precision, recall, rmse
from privacy.query_blocks import blocks_of
from privacy.query_terms import (
    ConcordanceMetric,
    ConfusionMetric,
    DiceMetric,
    ErrorMetric,
    EvaluationTerms,
    LossMetric,
    Metric,
)
from privacy.schema import DataSchema, NumericFeature
from sealsum.queries.answer import read_answer
from sealsum.queries.file import EvaluationRequest
from sealsum.queries.metrics import read_metric
from sealsum.queries.outcomes import read_outcome
from sealsum.queries.table import answer_table
from silo_agent.algorithms import dp_query
from silo_agent.data.records import Records
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.queries.metrics import metric_sums
from tests.federation import Federation
from tests.query_cohort import RELEASED, answered, asked, opened

PIXELS = tuple(f"m{number}" for number in range(64))
STAY = RealLabel(column="stay", low=0, high=60)
SURVIVAL = SurvivalLabel(time="days", event="dead", horizon=100)
MASK = MaskLabel(pixels=PIXELS)
Vector = NDArray[np.float64]


def schema(label: AnyLabel, width: int = 2) -> DataSchema:
    features = tuple(NumericFeature(column=f"x{number}", low=-1, high=1, impute=0) for number in range(width))
    return DataSchema(features=features, label=label, patient_id="patient")


def terms_of(*metrics: Metric) -> EvaluationTerms:
    return EvaluationTerms(model=model_terms("linear", 2), weights="0" * 64, metrics=metrics)


def exact(metric: Metric, label: AnyLabel, records: Records, scores: Vector) -> dict[str, Any]:
    """The answer of sums without noise."""
    data = schema(label)
    (block,) = blocks_of(terms_of(metric), data)
    (sums,) = metric_sums(terms_of(metric), records, scores)
    return read_metric(metric, data, sums.reshape(block.spec.shape), 1e-9)


def survivors(count: int, seed: int) -> tuple[Records, Vector]:
    drawn = np.random.default_rng(seed)
    risk = drawn.normal(size=count)
    time = drawn.exponential(np.exp(-risk))
    censored = drawn.exponential(2.0, count)
    labels = np.column_stack([np.minimum(np.minimum(time, censored) / 3, 1.0), time <= censored])
    labels[labels[:, 0] == 1.0, 1] = 0.0
    features = np.zeros((count, 2), dtype=np.float32)
    return Records(features, labels.astype(np.float32), kind="cox"), risk[:, None]


def test_errors_are_in_the_labels_unit() -> None:
    drawn = np.random.default_rng(0)
    truth, guess = drawn.uniform(-1, 1, 50).astype(np.float32), drawn.uniform(-1, 1, 50)
    records = Records(np.zeros((50, 2), dtype=np.float32), truth, kind="real")
    report = exact(ErrorMetric(), STAY, records, guess[:, None])
    assert report["mae"]["estimate"] == pytest.approx(30 * mae(guess, truth), rel=1e-4)
    assert report["rmse"]["estimate"] == pytest.approx(30 * rmse(guess, truth), rel=1e-4)
    capped = exact(ErrorMetric(cap=0.1), STAY, records, guess[:, None])
    assert capped["mae"]["estimate"] == pytest.approx(
        30 * np.minimum(np.abs(guess - truth), 0.2).mean(), rel=1e-4
    )


def test_dice_is_the_mean_over_records() -> None:
    drawn = np.random.default_rng(1)
    masks = drawn.integers(0, 2, (9, 64)).astype(np.float32)
    scores = drawn.normal(size=(9, 64))
    records = Records(np.zeros((9, 2), dtype=np.float32), masks, kind="mask")
    report = exact(DiceMetric(), MASK, records, scores)
    assert report["dice"]["estimate"] == pytest.approx(dice(scores >= 0, masks).mean(), rel=1e-4)


def test_concordance_is_harrells_where_bins_hide_nothing() -> None:
    records, risk = survivors(200, 2)
    metric = ConcordanceMetric(time_bins=8, bins=12, reach=3.0)
    times = np.minimum((records.labels[:, 0] * 8).astype(int), 8)
    hazards = np.searchsorted(np.linspace(-3, 3, 13)[1:-1], risk[:, 0], side="right")
    # A record that is censored in the bin of another's event is not compared with it.
    events = records.labels[:, 1]
    expected = concordance(hazards, times, events)
    good = pairs = 0.0
    for one in np.flatnonzero(events):
        later = times > times[one]
        good += (hazards[later] < hazards[one]).sum() + 0.5 * (hazards[later] == hazards[one]).sum()
        pairs += later.sum()
    got = exact(metric, SURVIVAL, records, risk)["concordance"]["estimate"]
    assert got == pytest.approx(good / pairs, rel=1e-5)
    assert got == pytest.approx(expected, abs=0.03)
    fine = exact(ConcordanceMetric(time_bins=100, bins=200), SURVIVAL, records, risk)
    exactly = concordance(risk[:, 0], records.labels[:, 0], events)
    assert fine["concordance"]["estimate"] == pytest.approx(exactly, abs=0.01)


def test_the_intervals_of_concordance_hold_under_noise() -> None:
    records, risk = survivors(1500, 3)
    metric = ConcordanceMetric(time_bins=5, bins=8, reach=3.0)
    (sums,) = metric_sums(terms_of(metric), records, risk)
    data, shape, error = schema(SURVIVAL), (2, 6, 8), 4.0
    truth = read_outcome(metric, data, sums.reshape(shape), 1e-9)["concordance"]["estimate"]
    drawn = np.random.default_rng(4)
    inside = 0
    for _ in range(400):
        noisy = sums.reshape(shape) + error * drawn.normal(size=shape)
        low, high = read_outcome(metric, data, noisy, error)["concordance"]["interval_95"]
        inside += low <= truth <= high
    assert 0.925 <= inside / 400 <= 0.98


def test_every_class_has_its_recall_precision_and_f1() -> None:
    drawn = np.random.default_rng(5)
    labels, scores = drawn.integers(0, 3, 60), drawn.normal(size=(60, 3))
    records = Records(np.zeros((60, 2), dtype=np.float32), labels.astype(np.float32), classes=3)
    label = ClassLabel(column="kind", categories=("a", "b", "c"))
    rows = exact(ConfusionMetric(), label, records, scores)["classes"]
    predicted = scores.argmax(1)
    for place, row in enumerate(rows):
        for name, measure in (("recall", recall), ("precision", precision), ("f1", f1)):
            assert row[name]["estimate"] == pytest.approx(measure(predicted, labels, place), rel=1e-4)


@pytest.mark.parametrize(
    ("metric", "label", "message"),
    [
        (ErrorMetric(), SURVIVAL, "expected a label of a number for error, got survival times"),
        (DiceMetric(), STAY, "expected a label of a mask for dice, got a number"),
        (ConcordanceMetric(), STAY, "expected a label of survival times .* for concordance, got a number"),
        (LossMetric(), SURVIVAL, r"for loss, got survival times \(cox\)"),
        (ConfusionMetric(), STAY, "expected a label of classes"),
    ],
)
def test_a_metric_that_the_label_has_not_is_refused(metric: Metric, label: AnyLabel, message: str) -> None:
    with pytest.raises(Unprocessable, match=message):
        blocks_of(terms_of(metric), schema(label))


@pytest.mark.parametrize(
    ("label", "adapter", "hidden", "metrics"),
    [
        (STAY, "linear", (), (ErrorMetric(), LossMetric())),
        (MASK, "unet", (4, 4), (DiceMetric(), LossMetric())),
        (
            SURVIVAL.model_copy(update={"loss": "exponential"}),
            "linear",
            (),
            (ConcordanceMetric(time_bins=3, bins=4), LossMetric()),
        ),
    ],
)
def test_an_evaluation_goes_all_the_way_from_records_to_a_table(
    label: AnyLabel,
    adapter: str,
    hidden: tuple[int, ...],
    metrics: tuple[Metric, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dp_query, "gaussian", lambda count, deviation: np.zeros(count))
    width = 64 if adapter == "unet" else 2
    federation = Federation(policy_text=RELEASED.replace("[loss,", "[dice, error, concordance, loss,"))
    terms = model_terms(adapter, width, hidden, label.outputs)
    weights = initial_vector(terms, 0)
    request = EvaluationRequest(adapter=adapter, hidden=hidden, metrics=metrics)
    job = asked(federation, request, schema(label, width), weights)
    drawn = np.random.default_rng(6)
    features = drawn.uniform(-1, 1, (30, width)).astype(np.float32)
    told = {
        "real": drawn.uniform(-1, 1, 30),
        "mask": drawn.integers(0, 2, (30, 64)),
        "exponential": np.column_stack([drawn.uniform(0, 1, 30), drawn.integers(0, 2, 30)]),
    }[label.kind]
    records = Records(features, told.astype(np.float32), kind=label.kind)
    # So many silos that counts stand out from the noise that readers are told of.
    answer = read_answer(job, opened(job, [answered(job, records, weights)] * 40), 3)
    first = answer["metrics"][0]
    assert first["kind"] == metrics[0].kind
    assert answer_table(answer).row_count >= 2
    figure = {"error": "mae", "dice": "dice", "concordance": "concordance"}[first["kind"]]
    assert first[figure]["estimate"] is not None
