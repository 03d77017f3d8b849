"""One patient moves a query's sum by at most C, whatever is asked and whatever the patient's records hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.plan import JobSpec
from privacy.query_blocks import blocks_of, factors_of
from privacy.query_terms import (
    AccuracyMetric,
    AucMetric,
    CalibrationMetric,
    ColumnSkewStatistic,
    ConfusionMetric,
    CountStatistic,
    EvaluationTerms,
    HistogramStatistic,
    LabelSkewStatistic,
    LabelStatistic,
    LossMetric,
    MeanStatistic,
    SizeSkewStatistic,
    Statistic,
    StatisticsTerms,
    VarianceStatistic,
)
from sealsum.queries.file import EvaluationRequest
from silo_agent.algorithms import dp_query
from silo_agent.data.records import Records
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.queries.metrics import metric_sums
from silo_agent.queries.statistics import statistics_sums
from tests.federation import Federation
from tests.query_cohort import SMALL, answered, asked

FEDERATION = Federation()
WIDTH = sum(feature.width + int(not feature.indicator) for feature in SMALL.features)
WEIRD = st.one_of(
    st.floats(width=32),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0, -0.0, 1.0, -1.0, 2.0]),
)
SHARE = st.floats(0.01, 100)


def _statistics() -> st.SearchStrategy[Statistic]:
    numeric = st.sampled_from(["age", "pressure"])
    cuts = st.sets(st.floats(21, 89), min_size=1, max_size=6).map(lambda some: tuple(sorted(some)))
    return st.one_of(
        st.builds(CountStatistic, share=SHARE),
        st.builds(LabelStatistic, share=SHARE),
        st.builds(MeanStatistic, column=numeric, share=SHARE),
        st.builds(VarianceStatistic, column=numeric, share=SHARE),
        st.builds(HistogramStatistic, column=numeric, cuts=cuts, by_label=st.booleans(), share=SHARE),
        st.builds(HistogramStatistic, column=st.just("sex"), by_label=st.booleans(), share=SHARE),
        st.builds(LabelSkewStatistic, least=st.integers(2, 20), share=SHARE),
        st.builds(SizeSkewStatistic, most=st.integers(1, 20), share=SHARE),
        st.builds(ColumnSkewStatistic, column=st.sampled_from(["age", "pressure", "sex"]), share=SHARE),
    )


def _vector(job: JobSpec, sums: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    assert job.dp is not None
    assert job.query is not None
    factors = factors_of(blocks_of(job.query, job.data), job.dp, job.training, job.vector)
    return np.concatenate([factor * one for (_, factor), one in zip(factors, sums, strict=True)])


def _clip(job: JobSpec) -> float:
    assert job.dp is not None
    return job.dp.clip_l2


@settings(max_examples=150, deadline=None)
@given(
    terms=st.lists(_statistics(), min_size=1, max_size=6),
    patient=st.lists(st.lists(WEIRD, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=4),
    label=st.one_of(WEIRD, st.integers(-3, 5)),
    others=st.integers(0, 3),
)
def test_one_patient_moves_the_statistics_by_at_most_c(
    terms: list[Statistic], patient: list[list[float]], label: float, others: int
) -> None:
    job = asked(FEDERATION, StatisticsTerms(statistics=tuple(terms)))
    rest = np.full((others, WIDTH), 0.25)
    features = np.array([*rest, *patient], dtype=np.float32)
    labels = np.array([0.0] * others + [label] * len(patient), dtype=np.float32)
    units = np.array([*range(others), *[others] * len(patient)], dtype=np.int64)
    assert isinstance(job.query, StatisticsTerms)
    with_patient = statistics_sums(job.query, SMALL, Records(features, labels, units=units))
    without = statistics_sums(
        job.query, SMALL, Records(features[:others], labels[:others], units=units[:others])
    )
    moved = _vector(job, with_patient) - _vector(job, without)
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= _clip(job)


@settings(max_examples=150, deadline=None)
@given(
    scores=st.lists(st.floats(), min_size=1, max_size=5),
    labels=st.lists(st.one_of(WEIRD, st.integers(-1, 3)), min_size=5, max_size=5),
    chosen=st.sets(st.integers(0, 4), min_size=1),
    cap=st.floats(0.01, 100),
    share=SHARE,
)
def test_one_patient_moves_the_metrics_by_at_most_c(
    scores: list[float], labels: list[float], chosen: set[int], cap: float, share: float
) -> None:
    every = (
        LossMetric(cap=cap, share=share),
        AccuracyMetric(threshold=0.3),
        ConfusionMetric(share=share),
        AucMetric(bins=7, reach=2.0),
        CalibrationMetric(bins=4),
    )
    request = EvaluationRequest(adapter="logistic", metrics=tuple(every[number] for number in sorted(chosen)))
    weights = np.zeros(model_terms("logistic", SMALL.width).parameters, dtype=np.float32)
    job = asked(FEDERATION, request, weights=weights)
    assert isinstance(job.query, EvaluationTerms)
    count = len(scores)
    records = Records(
        np.zeros((count, SMALL.width), dtype=np.float32),
        np.array(labels[:count], dtype=np.float32),
        units=np.zeros(count, dtype=np.int64),
    )
    moved = _vector(job, metric_sums(job.query, records, np.array(scores)[:, None]))
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= _clip(job)


@pytest.mark.parametrize("kind", ["statistics", "evaluation"])
def test_in_steps_of_the_grid_one_patient_moves_the_sum_by_at_most_s_times_c(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened are integers: their sensitivity is what is charged, rounding of sums included."""
    monkeypatch.setattr(dp_query, "gaussian", lambda count, deviation: np.zeros(count))
    random = np.random.default_rng(7)
    weights = None
    if kind == "statistics":
        request: StatisticsTerms | EvaluationRequest = StatisticsTerms(
            statistics=(
                VarianceStatistic(column="age"),
                HistogramStatistic(column="pressure", cuts=(50, 100, 150), by_label=True),
                LabelStatistic(),
            )
        )
        width = WIDTH
    else:
        request = EvaluationRequest(adapter="mlp", hidden=(5,), metrics=(LossMetric(), CalibrationMetric()))
        width, weights = SMALL.width, initial_vector(model_terms("mlp", SMALL.width, (5,)), 3)
    job = asked(FEDERATION, request, weights=weights)
    for _ in range(60):
        features = random.normal(size=(12, width)).astype(np.float32)
        labels = (random.random(12) > 0.5).astype(np.float32)
        many = answered(job, Records(features, labels), weights)
        fewer = answered(job, Records(features[1:], labels[1:]), weights)
        assert np.linalg.norm(many - fewer) <= 2.0**job.vector.scale_bits * _clip(job)


@pytest.mark.parametrize("label", [3e38, -3e38, np.inf, np.nan, 2.0, -1.0])
def test_a_label_of_no_class_is_in_no_cell_of_a_histogram_by_label(label: float) -> None:
    terms = StatisticsTerms(statistics=(HistogramStatistic(column="age", cuts=(21, 22), by_label=True),))
    one = Records(np.zeros((1, WIDTH), dtype=np.float32), np.array([label], dtype=np.float32))
    (sums,) = statistics_sums(terms, SMALL, one)
    assert not sums.any()
