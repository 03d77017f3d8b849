"""A silo's answers: exact sums over its patients, on the grid, under the noise that is charged."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as oracle

from privacy.dp.integer_noise import integer_mechanism
from privacy.plan import JobSpec
from privacy.query_blocks import blocks_of, factors_of
from privacy.query_terms import (
    AccuracyMetric,
    AucMetric,
    CalibrationMetric,
    ConfusionMetric,
    CountStatistic,
    HistogramStatistic,
    LabelStatistic,
    LossMetric,
    MeanStatistic,
    StatisticsTerms,
    VarianceStatistic,
)
from privacy.schema import NumericFeature
from sealsum.queries.answer import noise_deviation
from sealsum.queries.file import EvaluationRequest, NoiseRequest
from silo_agent.algorithms import dp_query
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.queries.scores import scores_of
from tests.federation import Federation
from tests.query_cohort import HEART, SMALL, answered, asked, heart_tables, opened, records_of

FEDERATION = Federation()
EVERYTHING = StatisticsTerms(
    statistics=(
        CountStatistic(share=3),
        LabelStatistic(),
        MeanStatistic(column="thalach"),
        VarianceStatistic(column="age"),
        HistogramStatistic(column="age", cuts=(40, 50, 60, 70)),
        HistogramStatistic(column="chol", cuts=(200, 240, 300)),
        HistogramStatistic(column="thal", by_label=True),
    )
)
METRICS = EvaluationRequest(
    adapter="mlp",
    hidden=(8,),
    metrics=(
        LossMetric(cap=1.5),
        AccuracyMetric(),
        ConfusionMetric(threshold=0.4),
        AucMetric(bins=12),
        CalibrationMetric(bins=5),
    ),
)
MODEL = model_terms("mlp", HEART.width, (8,))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, to see what it would be added to."""
    monkeypatch.setattr(dp_query, "gaussian", lambda count, deviation: np.zeros(count))


def _unscaled(job: JobSpec, vector: NDArray[np.float32]) -> list[NDArray[np.float64]]:
    assert job.query is not None
    assert job.dp is not None
    blocks = blocks_of(job.query, job.data)
    return [
        vector[block.coordinates].reshape(block.spec.shape) / factor
        for block, factor in factors_of(blocks, job.dp, job.training, job.vector)
    ]


def _rows() -> list[dict[str, str]]:
    """All patients of the four hospitals as text, read by nothing of ours."""
    return [
        row for table in heart_tables() for row in csv.DictReader(io.StringIO(table.csv_bytes().decode()))
    ]


def _numbers(rows: list[dict[str, str]], feature: NumericFeature) -> NDArray[np.float64]:
    there = [float(row[feature.column]) for row in rows if row[feature.column] not in feature.missing]
    return np.clip(there, feature.low, feature.high)


@pytest.mark.usefixtures("silent")
def test_without_noise_the_sum_over_silos_is_the_oracles(tmp_path: Path) -> None:
    job = asked(FEDERATION, EVERYTHING, HEART)
    updates = [answered(job, records_of(table.csv_bytes(), job, tmp_path)) for table in heart_tables()]
    count, label, mean, variance, ages, cholesterol, thal = _unscaled(job, opened(job, updates))
    rows = _rows()
    feature = {one.column: one for one in HEART.features}
    sick = [float(row["num"]) > 0 for row in rows]
    step = 4 * 2.0**-job.vector.scale_bits * 10  # each silo rounds once; weights and bounds stretch a step
    np.testing.assert_allclose(count, [len(rows)], atol=step)
    np.testing.assert_allclose(label, [len(rows) - sum(sick), sum(sick)], atol=step)
    for sums, column in ((mean, "thalach"), (variance, "age")):
        values = _numbers(rows, feature[column])  # type: ignore[arg-type]  # both are numeric
        low, high = feature[column].low, feature[column].high  # type: ignore[union-attr]  # as above
        x = 2 * (values - low) / (high - low) - 1
        np.testing.assert_allclose(sums, [len(x), x.sum(), np.square(x).sum()][: len(sums)], atol=step + 1e-3)
    for counts, column, cuts in ((ages, "age", (40, 50, 60, 70)), (cholesterol, "chol", (200, 240, 300))):
        values = _numbers(rows, feature[column])  # type: ignore[arg-type]  # as above
        bins = [-np.inf, *cuts, np.inf]
        expected = [int(((values >= a) & (values < b)).sum()) for a, b in pairwise(bins)]
        np.testing.assert_allclose(counts, [*expected, len(rows) - len(values)], atol=step)
    categories = ["normal", "fixed defect", "reversable defect", ""]
    table = [
        [
            sum(row["thal"] == name and ill == one for row, ill in zip(rows, sick, strict=True))
            for name in categories
        ]
        for one in (False, True)
    ]
    np.testing.assert_allclose(thal, table, atol=step)


@pytest.mark.usefixtures("silent")
def test_without_noise_metrics_over_silos_are_the_oracles(tmp_path: Path) -> None:
    weights = initial_vector(MODEL, 11)
    job = asked(FEDERATION, METRICS, HEART, weights)
    cohort = [records_of(table.csv_bytes(), job, tmp_path) for table in heart_tables()]
    updates = [answered(job, records, weights) for records in cohort]
    loss, accuracy, confusion, _, calibration = _unscaled(job, opened(job, updates))
    features = np.concatenate([records.features for records in cohort])
    labels = np.concatenate([records.labels for records in cohort]).astype(int)
    chance = 1 / (1 + np.exp(-predict_scores(ADAPTERS["mlp"], MODEL, weights, features).astype(np.float64)))
    step = 4 * 2.0**-job.vector.scale_bits * 10
    losses = [min(oracle.log_loss([y], [p], labels=[0, 1]), 1.5) for y, p in zip(labels, chance, strict=True)]
    np.testing.assert_allclose(loss, [len(labels), sum(losses) / 1.5], atol=step + 1e-3)
    right = int(oracle.accuracy_score(labels, chance >= 0.5, normalize=False))
    np.testing.assert_allclose(accuracy, [right, len(labels) - right], atol=step)
    np.testing.assert_allclose(confusion, oracle.confusion_matrix(labels, chance >= 0.4), atol=step)
    for number, row in enumerate(calibration):
        inside = (chance >= number / 5) & (chance < (number + 1) / 5)
        expected = [inside.sum(), labels[inside].sum(), chance[inside].sum()]
        np.testing.assert_allclose(row, expected, atol=step + 1e-3)


@pytest.mark.usefixtures("silent")
def test_what_leaves_is_whole_steps_of_the_grid(tmp_path: Path) -> None:
    job = asked(FEDERATION, EVERYTHING, HEART)
    steps = answered(job, records_of(heart_tables()[0].csv_bytes(), job, tmp_path))
    np.testing.assert_array_equal(steps, np.rint(steps))


def test_a_value_at_a_cut_is_above_it_and_one_outside_the_range_is_in_the_outer_bin(tmp_path: Path) -> None:
    cuts = (33.3, 47.1, 55.0)
    job = asked(FEDERATION, StatisticsTerms(statistics=(HistogramStatistic(column="age", cuts=cuts),)))
    ages = [20, 33.3, 47.1, 55.0, 33.2999, 47.0999, -400, 1e9, ""]
    lines = [f"p{number},{age},f,100,0" for number, age in enumerate(ages)]
    raw = "\n".join(["patient,age,sex,pressure,num", *lines]).encode()
    assert job.query is not None
    records = records_of(raw, job, tmp_path)
    sums = dp_query.statistics_sums(job.query, SMALL, records)[0]  # type: ignore[arg-type]  # statistics
    np.testing.assert_array_equal(sums, [3, 2, 1, 2, 1])


def test_a_patient_with_several_records_counts_once() -> None:
    features = np.zeros((5, 7), dtype=np.float32)
    features[:, 0] = [1, -1, 1, 1, 1]
    units = np.array([0, 0, 1, 2, 2])
    records = Records(features, np.array([0, 1, 1, 0, 0], dtype=np.float32), units=units)
    query = StatisticsTerms(statistics=(CountStatistic(), LabelStatistic(), MeanStatistic(column="age")))
    count, label, mean = dp_query.statistics_sums(query, SMALL, records)
    np.testing.assert_allclose(count, [3])
    np.testing.assert_allclose(label, [1.5, 1.5])
    np.testing.assert_allclose(mean, [3, 2])


@pytest.mark.parametrize("shares", [None, 2])
def test_a_silos_noise_has_the_deviation_that_is_charged(shares: int | None) -> None:
    noise = NoiseRequest(
        unit="patient",
        noise_multiplier=5.0,
        delta=1e-5,
        model="local" if shares is None else "distributed",
        noise_shares=shares,
    )
    job = asked(FEDERATION, EVERYTHING, HEART, dp=noise)
    assert job.dp is not None
    nobody = Records(np.zeros((0, 40), dtype=np.float32), np.zeros(0, dtype=np.float32))
    draws = np.concatenate([answered(job, nobody) for _ in range(300)])
    mechanism = integer_mechanism(job.dp, job.training, job.vector, job.model.parameters)
    expected = 2.0**job.vector.scale_bits * 5.0 / np.sqrt(shares or 1)
    assert mechanism.deviation == pytest.approx(expected, rel=1e-9)
    low, high = stats.chi2.ppf([1e-7, 1 - 1e-7], len(draws))
    assert low <= np.square(draws / expected).sum() <= high
    assert stats.kstest(draws / expected, "norm").pvalue > 1e-6
    # What readers are told is the same noise.
    assert noise_deviation(job, 1) * 2.0**job.vector.scale_bits == pytest.approx(expected, rel=1e-4)


def test_a_score_depends_on_its_own_record_to_the_last_bit() -> None:
    terms = model_terms("mlp", 40, (64, 32))
    module = build_model(ADAPTERS["mlp"], terms, initial_vector(terms, 5))
    random = np.random.default_rng(2)
    features = random.normal(size=(150, 40)).astype(np.float32)
    labels = np.zeros(150, dtype=np.float32)
    together = scores_of(module, Records(features, labels))
    for row in range(150):
        alone = scores_of(module, Records(features[row : row + 1], labels[:1]))
        assert alone[0, 0] == together[row, 0]


def test_a_record_whose_score_is_not_finite_adds_nothing() -> None:
    weights = initial_vector(MODEL, 11)
    job = asked(FEDERATION, METRICS, HEART, weights)
    assert job.query is not None
    random = np.random.default_rng(3)
    features = random.normal(size=(6, HEART.width)).astype(np.float32)
    labels = np.array([0, 1, 0, 1, 0, 1], dtype=np.float32)
    whole = Records(features, labels)
    broken = features.copy()
    broken[2] = np.nan
    broken[5, 0] = np.inf
    broken[5, 1] = -np.inf
    module = build_model(ADAPTERS["mlp"], MODEL, weights)
    scored = scores_of(module, Records(broken, labels))
    finite = np.isfinite(scored[:, 0])
    kept = Records(features[finite], labels[finite])
    sums = dp_query.metric_sums(job.query, Records(broken, labels), scored)  # type: ignore[arg-type]  # an evaluation
    expected = dp_query.metric_sums(job.query, kept, scores_of(module, kept))  # type: ignore[arg-type]  # as above
    assert not finite[2]
    for one, other in zip(sums, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(whole) == 6


def test_an_evaluation_leaves_the_model_as_it_is() -> None:
    module = build_model(ADAPTERS["mlp"], MODEL, initial_vector(MODEL, 1))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    scores_of(module, Records(np.ones((3, HEART.width), dtype=np.float32), np.zeros(3, dtype=np.float32)))
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
