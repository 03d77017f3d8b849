"""Queries asked of silos in memory, by the silo's own code: jobs, records, updates, and the opened sum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.plan import JobSpec
from privacy.query_terms import EvaluationTerms, QueryTerms, StatisticsTerms
from privacy.schema import CategoricalFeature, DataSchema, Label, NumericFeature
from privacy.update import model_vector
from sealsum.demo.job import heart_schema
from sealsum.demo.patients import HOSPITALS, Table, patients_of
from sealsum.queries.file import EvaluationRequest, NoiseRequest, QueryFile, no_answers
from silo_agent.algorithms.catalogue import ALGORITHMS
from silo_agent.algorithms.task import Task
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.queries.question import Question, computed_model, schema_read
from tests.federation import Federation, demo_policy_text

SMALL = DataSchema(
    features=(
        NumericFeature(column="age", low=20, high=90, impute=55),
        CategoricalFeature(column="sex", categories=("f", "m")),
        NumericFeature(column="pressure", low=0, high=300, impute=120, missing=("", "0"), indicator=True),
    ),
    label=Label(column="num", threshold=0),
    patient_id="patient",
)
HEART = heart_schema()
ALLOWED = demo_policy_text().replace(
    "algorithms: [dp_fedsgd, dp_fedavg]", "algorithms: [dp_fedsgd, dp_fedavg, dp_statistics, dp_evaluation]"
)
RELEASED = ALLOWED.replace(
    "metrics: {names: [], dp: withheld}",
    "metrics: {names: [loss, accuracy, auc, calibration, confusion], dp: charged}",
)


def query_file(
    query: StatisticsTerms | EvaluationRequest, schema: DataSchema = SMALL, **changes: Any
) -> QueryFile:
    """A request under ε = 1 in one round."""
    fields: dict[str, Any] = {
        "job": "question",
        "purpose": "test",
        "dataset": "cardio",
        "data": schema,
        "query": query,
        "dp": NoiseRequest(unit="patient", epsilon=0.9, delta=1e-5),
        "patients_at_most": 2000,
        "min_silos": 3,
        **changes,
    }
    return QueryFile(**fields)


def asked(
    federation: Federation,
    query: StatisticsTerms | EvaluationRequest,
    schema: DataSchema = SMALL,
    weights: NDArray[np.float32] | None = None,
    **changes: Any,
) -> JobSpec:
    """The signed form of a request."""
    return query_file(query, schema, **changes).spec(federation.charter, weights)


def heart_tables() -> list[Table]:
    """The four hospitals' files."""
    return [patients_of(hospital) for hospital in HOSPITALS]


def records_of(raw: bytes, job: JobSpec, directory: Path) -> Records:
    """A CSV as the silo reads it for this job."""
    path = directory / "records.csv"
    path.write_bytes(raw)
    return read_csv_table(path, schema_read(job), "patient")


def answered(
    job: JobSpec, records: Records, weights: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """One silo's update, float64[d] of integers."""
    model = computed_model(job)
    assert job.query is not None
    task = Task(
        model=job.model,
        training=job.training,
        dp=job.dp,
        vector=job.vector,
        start=no_answers(job.model),
        adapter=None if model is None else ADAPTERS[model.adapter],
        records=records,
        question=Question(job.query, job.data, weights),
    )
    update = ALGORITHMS[job.training.algorithm](task)
    return update.steps  # type: ignore[union-attr]  # queries end on the grid


def opened(job: JobSpec, updates: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    """The published sum of silos' updates."""
    total = np.sum(updates, axis=0) / 2.0**job.vector.scale_bits
    return model_vector(job.model, total.astype("<f4").tobytes())


def metrics_of(query: QueryTerms | None) -> EvaluationTerms:
    """The evaluation of a job."""
    assert isinstance(query, EvaluationTerms)
    return query
