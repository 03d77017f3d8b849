"""Queries over schemas that ask for more than columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from privacy.fixed_features import OrientedGradients
from privacy.query_terms import CountStatistic, HistogramStatistic, MeanStatistic, StatisticsTerms
from privacy.schema import DataSchema, Label, NumericFeature
from silo_agent.queries.statistics import statistics_sums
from tests.federation import Federation
from tests.query_cohort import RELEASED, answered, asked, records_of

PIXELS = tuple(NumericFeature(column=f"p{number}", low=0, high=255, impute=0) for number in range(16))
IMAGES = DataSchema(
    features=PIXELS,
    label=Label(column="y", threshold=0),
    patient_id="patient",
    transform=OrientedGradients(rows=4, columns=4, cells=1),
)
QUESTIONS = StatisticsTerms(
    statistics=(CountStatistic(), MeanStatistic(column="p3"), HistogramStatistic(column="p15", cuts=(100.0,)))
)


def test_statistics_of_a_schema_with_a_transform_are_of_its_columns(tmp_path: Path) -> None:
    """Read through the transform, columns would be others' coordinates, or end the silo's process."""
    job = asked(Federation(policy_text=RELEASED), QUESTIONS, schema=IMAGES)
    header = ",".join(["patient", "y", *(feature.column for feature in PIXELS)])
    rows = [",".join([f"a{number}", "1", *["255"] * 15, "51"]) for number in range(5)]
    records = records_of("\n".join([header, *rows]).encode(), job, tmp_path)
    count, mean, histogram = statistics_sums(QUESTIONS, job.data, records)
    assert count.tolist() == [5]
    assert mean.tolist() == pytest.approx([5, 5])
    assert histogram.tolist() == [5, 0, 0]
    assert answered(job, records).shape == (1 + 2 + 3,)
