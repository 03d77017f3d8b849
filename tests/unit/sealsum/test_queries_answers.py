"""What an opened vector says: errors that hold, numbers as plain computation has them, nothing clipped."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats
from sklearn import metrics as oracle

from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import JobSpec
from privacy.query_terms import (
    AccuracyMetric,
    AucMetric,
    CalibrationMetric,
    ConfusionMetric,
    CountStatistic,
    HistogramStatistic,
    LabelStatistic,
    LossMetric,
    StatisticsTerms,
    VarianceStatistic,
)
from sealsum.queries.answer import read_answer
from sealsum.queries.file import EvaluationRequest, NoiseRequest, read_query_file
from sealsum.queries.picture import save_picture
from sealsum.queries.table import answer_table
from silo_agent.algorithms import dp_query
from silo_agent.data.records import Records
from silo_agent.models.layouts import model_terms
from tests.federation import Federation
from tests.query_cohort import SMALL, answered, asked, opened

FEDERATION = Federation()
SILOS = 4
REPETITIONS = 300
STATISTICS = StatisticsTerms(
    statistics=(
        CountStatistic(),
        LabelStatistic(),
        VarianceStatistic(column="age"),
        HistogramStatistic(column="age", cuts=(30, 40, 50, 60, 70, 80)),
    )
)
METRICS = EvaluationRequest(
    adapter="logistic",
    metrics=(
        LossMetric(cap=2.0),
        AccuracyMetric(),
        ConfusionMetric(),
        AucMetric(bins=20),
        CalibrationMetric(),
    ),
)
MODEL = model_terms("logistic", SMALL.width)
WEIGHTS = np.array([1.2, 0.1, -0.1, 0.2, 0.0, 0.3], dtype=np.float32)


def _cohort(width: int) -> list[Records]:
    random = np.random.default_rng(4)
    cohort = []
    for silo in range(SILOS):
        features = np.zeros((400 + 50 * silo, width), dtype=np.float32)
        features[:, 0] = np.clip(random.normal(0.1 * silo, 0.4, len(features)), -1, 1)
        chance = 1 / (1 + np.exp(-2 * features[:, 0]))
        cohort.append(Records(features, (random.random(len(features)) < chance).astype(np.float32)))
    return cohort


def _job(kind: str) -> JobSpec:
    noise = NoiseRequest(unit="patient", noise_multiplier=4.0, delta=1e-5)
    if kind == "statistics":
        return asked(FEDERATION, STATISTICS, dp=noise)
    return asked(FEDERATION, METRICS, weights=WEIGHTS, dp=noise)


@cache
def _answers(kind: str) -> tuple[dict[str, Any], ...]:
    """Many answers to the same query, by the silos' own code."""
    job = _job(kind)
    cohort = _cohort(7 if kind == "statistics" else SMALL.width)
    weights = None if kind == "statistics" else WEIGHTS
    return tuple(
        read_answer(job, opened(job, [answered(job, records, weights) for records in cohort]), SILOS)
        for _ in range(REPETITIONS)
    )


def _truth(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(dp_query, "gaussian", lambda count, deviation: np.zeros(count))
    job = _job(kind)
    cohort = _cohort(7 if kind == "statistics" else SMALL.width)
    weights = None if kind == "statistics" else WEIGHTS
    return read_answer(job, opened(job, [answered(job, records, weights) for records in cohort]), SILOS)


def _numbers(value: Any, path: str = "") -> dict[str, dict[str, Any]]:
    """Every number with a standard error, by its place in the JSON."""
    found: dict[str, dict[str, Any]] = {}
    if isinstance(value, dict):
        if "standard_error" in value:
            found[path] = value
        for name, inner in value.items():
            found |= _numbers(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found |= _numbers(inner, f"{path}.{number}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["statistics", "evaluation"])
def test_intervals_hold_the_truth_as_often_as_they_say(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = _answers(kind)
    truth = {path: one["estimate"] for path, one in _numbers(_truth(kind, monkeypatch)).items()}
    held: Counter[str] = Counter()
    said: Counter[str] = Counter()
    for answer in answers:
        for path, one in _numbers(answer).items():
            low, high = one["interval_95"]
            if path in truth:  # ratios of nearly empty bins are given at times
                held[path] += low <= truth[path] <= high
                said[path] += 1
    assert len(said) >= 12
    for path, times in said.items():
        low, high = stats.binom.ppf([1e-5, 1 - 1e-5], times, [0.935, 0.965])
        # A ratio with few counts below it is not quite normal: 93.5 to 96.5 % instead of 95.
        if times >= REPETITIONS:
            assert low <= held[path] <= high, (path, held[path] / times)


@pytest.mark.slow
def test_the_mean_of_many_answers_is_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [_numbers(answer) for answer in _answers("statistics")]
    truth = _numbers(_truth("statistics", monkeypatch))
    for path in (".statistics.0.count", ".statistics.2.sum", ".statistics.3.histograms.0.bins.2"):
        values = np.array([answer[path]["estimate"] for answer in answers])
        error = truth[path]["standard_error"]
        assert abs(values.mean() - truth[path]["estimate"]) < 5 * error / np.sqrt(len(values))
        assert values.std() == pytest.approx(error, rel=0.2)


def test_without_noise_the_numbers_are_those_of_plain_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _truth("statistics", monkeypatch)
    age = np.concatenate([records.features[:, 0] for records in _cohort(7)]).astype(np.float64) * 35 + 55
    count, _, moments, histogram = answer["statistics"]
    assert count["count"]["estimate"] == pytest.approx(len(age), rel=1e-4)
    assert moments["sum"]["estimate"] == pytest.approx(age.sum(), rel=1e-4)
    assert moments["mean"]["estimate"] == pytest.approx(age.mean(), rel=1e-4)
    assert moments["variance"]["estimate"] == pytest.approx(age.var(), rel=1e-3)
    for quantile in histogram["histograms"][0]["quantiles"]:
        low, high = quantile["interval_95"]
        assert low <= np.quantile(age, quantile["quantile"]) <= high


def test_without_noise_the_metrics_are_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, accuracy, confusion, auc, calibration = _truth("evaluation", monkeypatch)["metrics"]
    features = np.concatenate([records.features for records in _cohort(SMALL.width)]).astype(np.float64)
    labels = np.concatenate([records.labels for records in _cohort(SMALL.width)])
    logits = features @ WEIGHTS[:-1] + WEIGHTS[-1]
    chance = 1 / (1 + np.exp(-logits))
    binned = np.searchsorted(np.linspace(-4, 4, 21)[1:-1], logits, side="right")
    assert loss["loss"]["estimate"] == pytest.approx(oracle.log_loss(labels, chance), rel=1e-3)
    assert accuracy["accuracy"]["estimate"] == pytest.approx(
        oracle.accuracy_score(labels, chance >= 0.5), abs=1e-4
    )
    assert auc["auc"]["estimate"] == pytest.approx(oracle.roc_auc_score(labels, binned), abs=1e-4)
    assert confusion["sensitivity"]["estimate"] == pytest.approx(
        oracle.recall_score(labels, chance >= 0.5), abs=1e-3
    )
    gaps = [
        abs(labels[inside].sum() - chance[inside].sum())
        for inside in ((chance >= low / 10) & (chance < (low + 1) / 10) for low in range(10))
    ]
    error = calibration["expected_calibration_error"]
    assert error["estimate"] == pytest.approx(sum(gaps) / len(labels), abs=1e-3)


def _of_nobody(kind: str, value: float) -> dict[str, Any]:
    job = _job(kind)
    vector: NDArray[np.float32] = np.full(job.model.parameters, value, dtype=np.float32)
    return read_answer(job, vector, SILOS)


@pytest.mark.parametrize("kind", ["statistics", "evaluation"])
def test_negative_counts_are_reported_as_they_came(kind: str) -> None:
    answer = _of_nobody(kind, -3.0)
    counts = [one for path, one in _numbers(answer).items() if path.endswith("count") or "counts" in path]
    assert counts
    assert all(one["estimate"] < 0 for one in counts)


@pytest.mark.parametrize("kind", ["statistics", "evaluation"])
def test_where_noise_is_all_there_is_no_ratio_is_invented(kind: str) -> None:
    answer = _of_nobody(kind, 0.5)
    text = json.dumps(answer)
    assert "too few values beside the noise" in text
    for name in ("mean", "variance", "accuracy", "auc", "loss", "sensitivity"):
        for one in [*answer.get("statistics", ()), *answer.get("metrics", ())]:
            if name in one:
                assert one[name]["estimate"] is None


@pytest.mark.parametrize("kind", ["statistics", "evaluation"])
def test_an_answer_can_be_read_as_a_table_and_as_a_picture(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.loads(json.dumps(_truth(kind, monkeypatch)))
    console = Console(width=120, record=True, file=(tmp_path / "table.txt").open("w"))
    console.print(answer_table(answer))
    text = console.export_text()
    console.file.close()
    assert ("age: mean" if kind == "statistics" else "area under the ROC curve") in text
    save_picture(answer, tmp_path / "answer.png")
    assert (tmp_path / "answer.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigurationError, match=r"ends in \.png"):
        save_picture(answer, tmp_path / "answer.txt")


def test_a_job_that_trains_has_no_answer() -> None:
    with pytest.raises(ConfigurationError, match="expected a query"):
        read_answer(FEDERATION.job_spec(), np.zeros(3, dtype=np.float32), SILOS)


YAML = """
job: ages
purpose: test
dataset: cardio
data:
  features:
    - {kind: numeric, column: age, low: 20, high: 90, impute: 55}
  label: {column: num, threshold: 0}
  patient_id: patient
query:
  kind: statistics
  statistics:
    - {kind: count}
    - {kind: histogram, column: age, cuts: [40, 60], share: 2}
dp: {unit: patient, epsilon: 0.5, delta: 1e-5}
patients_at_most: 5000
min_silos: 3
"""


def test_a_query_file_becomes_one_step_over_all_patients_at_the_epsilon_asked(tmp_path: Path) -> None:
    path = tmp_path / "query.yaml"
    path.write_text(YAML)
    job = read_query_file(path).spec(FEDERATION.charter)
    assert job.dp is not None
    assert (job.rounds, job.training.local_steps, job.dp.sample_rate) == (1, 1, 1.0)
    answer = read_answer(job, np.zeros(job.model.parameters, dtype=np.float32), SILOS)
    assert 0.499 <= answer["privacy"]["epsilon"] <= 0.5


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cuts: [40, 60]", "cuts: [60, 40]", "ascending"),
        ("epsilon: 0.5", "epsilon: 0.5, noise_multiplier: 3", "one of them"),
        ("{kind: count}", "{kind: median}", "statistics"),
        ("patients_at_most: 5000\n", "", "patients_at_most"),
    ],
)
def test_a_query_file_with_a_fault_is_refused_by_name(tmp_path: Path, old: str, new: str, why: str) -> None:
    path = tmp_path / "query.yaml"
    path.write_text(YAML.replace(old, new))
    with pytest.raises(ConfigurationError, match=why):
        read_query_file(path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("column: age, cuts: [40, 60]", "column: height, cuts: [40, 60]", "column of the schema"),
        ("cuts: [40, 60]", "cuts: [10, 60]", "within its range"),
        ("cuts: [40, 60]", "cuts: []", "within its range"),
    ],
)
def test_a_query_that_does_not_fit_its_schema_is_refused(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    path = tmp_path / "query.yaml"
    path.write_text(YAML.replace(old, new))
    with pytest.raises(Unprocessable, match=why):
        read_query_file(path).spec(FEDERATION.charter)


def test_shared_noise_without_its_shares_is_refused_as_configuration(tmp_path: Path) -> None:
    path = tmp_path / "query.yaml"
    path.write_text(YAML.replace("epsilon: 0.5", "epsilon: 0.5, model: distributed"))
    with pytest.raises(ConfigurationError, match=r"dp:\n  noise_shares: expected it with model distributed"):
        read_query_file(path).spec(FEDERATION.charter)
