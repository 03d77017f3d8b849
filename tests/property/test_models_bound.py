"""One patient moves metrics of numbers, masks and survival times by at most C, whatever her records hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.labels import AnyLabel, Label, LabelKind, MaskLabel, RealLabel, SurvivalLabel
from privacy.plan import JobSpec
from privacy.query_blocks import SUM_MARGIN, blocks_of, factors_of
from privacy.query_terms import (
    ConcordanceMetric,
    DiceMetric,
    ErrorMetric,
    EvaluationTerms,
    LossMetric,
    Metric,
)
from privacy.schema import DataSchema, NumericFeature
from sealsum.queries.file import EvaluationRequest
from silo_agent.data.records import Records
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.queries.metrics import metric_sums
from tests.federation import Federation
from tests.query_cohort import asked

SIDE = 8
FEDERATION = Federation()
LABELS: dict[LabelKind, AnyLabel] = {
    "classes": Label(column="num", threshold=0),
    "real": RealLabel(column="num", low=0, high=9),
    "mask": MaskLabel(pixels=tuple(f"m{number}" for number in range(SIDE**2))),
    "exponential": SurvivalLabel(time="days", event="dead", horizon=100, loss="exponential"),
    "cox": SurvivalLabel(time="days", event="dead", horizon=100),
}
ASKED: dict[LabelKind, tuple[Metric, ...]] = {
    "classes": (LossMetric(cap=0.5),),
    "real": (ErrorMetric(cap=0.3), LossMetric(cap=0.1, share=2.0)),
    "mask": (DiceMetric(), LossMetric(cap=0.2, share=5.0)),
    "exponential": (ConcordanceMetric(time_bins=3, bins=4), LossMetric(cap=2.0)),
    "cox": (ConcordanceMetric(time_bins=3, bins=4),),
}
WEIRD = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0, 0.5, 2.0, -1.0, float("nan")]))


def _job(kind: LabelKind) -> JobSpec:
    width = SIDE**2 if kind == "mask" else 2
    adapter, hidden = ("unet", (4, 4)) if kind == "mask" else ("linear", ())
    features = tuple(NumericFeature(column=f"x{one}", low=-1, high=1, impute=0) for one in range(width))
    schema = DataSchema(features=features, label=LABELS[kind], patient_id="patient")
    weights = initial_vector(model_terms(adapter, width, hidden, LABELS[kind].outputs), 0)
    request = EvaluationRequest(adapter=adapter, hidden=hidden, metrics=ASKED[kind])
    return asked(FEDERATION, request, schema, weights)


JOBS: dict[LabelKind, JobSpec] = {kind: _job(kind) for kind in LABELS}


def _moved(job: JobSpec, records: Records, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    assert job.dp is not None
    assert isinstance(job.query, EvaluationTerms)
    factors = factors_of(blocks_of(job.query, job.data), job.dp, job.training, job.vector)
    sums = metric_sums(job.query, records, scores)
    return np.concatenate([factor * one for (_, factor), one in zip(factors, sums, strict=True)])


@pytest.mark.parametrize("kind", LABELS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_patient_moves_them_by_at_most_c(kind: LabelKind, data: st.DataObject) -> None:
    job, count = JOBS[kind], data.draw(st.integers(1, 4))
    outputs = LABELS[kind].outputs
    width = {"mask": outputs, "exponential": 2, "cox": 2}.get(kind, 0)
    # Few distinct values fill a mask: one drawn number a pixel would be slow and tell no more.
    seed = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = np.array(data.draw(st.lists(WEIRD, min_size=3, max_size=3)), dtype=np.float32)
    labels = seed.choice(values, (count, width) if width else (count,)).astype(np.float32)
    if data.draw(st.booleans()):
        labels = seed.integers(0, 2, labels.shape).astype(np.float32)
    extremes = np.array(data.draw(st.lists(st.floats(), min_size=3, max_size=3)))
    scores = seed.choice(extremes, (count, outputs))
    records = Records(
        np.zeros((count, len(job.data.features)), dtype=np.float32),
        labels,
        units=np.zeros(count, dtype=np.int64),
        kind=kind,
    )
    moved = _moved(job, records, scores)
    assert job.dp is not None
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= job.dp.clip_l2 * SUM_MARGIN


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("score", [np.finfo(np.float64).max, np.finfo(np.float64).min, 1e200])
def test_a_score_as_large_as_numbers_go_moves_them_no_further(kind: LabelKind, score: float) -> None:
    job, outputs = JOBS[kind], LABELS[kind].outputs
    width = {"mask": (outputs,), "exponential": (2,), "cox": (2,)}.get(kind, ())
    features = np.zeros((1, len(job.data.features)), dtype=np.float32)
    labels = np.zeros((1, *width), dtype=np.float32)
    records = Records(features, labels, units=np.zeros(1, dtype=np.int64), kind=kind)
    moved = _moved(job, records, np.full((1, outputs), score))
    assert job.dp is not None
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= job.dp.clip_l2 * SUM_MARGIN
