"""One patient moves a silo's term of a skew by no more than its bound, at silos of any size, and nearly by
it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.query_blocks import blocks_of
from privacy.query_terms import ColumnSkewStatistic, LabelSkewStatistic, SizeSkewStatistic, StatisticsTerms
from privacy.schema import CategoricalFeature, ClassLabel, DataSchema, NumericFeature
from silo_agent.data.records import Records
from silo_agent.queries.statistics import statistics_sums

SCHEMA = DataSchema(
    features=(
        NumericFeature(column="x", low=-1, high=1, impute=0, indicator=True),
        CategoricalFeature(column="c", categories=("a", "b", "c"), indicator=True),
    ),
    label=ClassLabel(column="y", categories=("p", "q", "r")),
    patient_id="patient",
)


def _moved(asked: StatisticsTerms, records: Records, rest: Records) -> list[float]:
    """By how much the patients of ``records`` who are not in ``rest`` move each block, over its bound."""
    blocks = blocks_of(asked, SCHEMA)
    terms = zip(
        blocks, statistics_sums(asked, SCHEMA, records), statistics_sums(asked, SCHEMA, rest), strict=True
    )
    return [float(np.linalg.norm(one - other)) / block.bound for block, one, other in terms]


def _records(rows: NDArray[np.float64], units: NDArray[np.int64] | None = None) -> Records:
    """Columns: x, whether it is missing, category 0–3 (3 is missing), label 0–2."""
    chosen = np.eye(4)[rows[:, 2].astype(int)]
    features = np.column_stack([rows[:, 0], rows[:, 1], chosen]).astype(np.float32)
    return Records(features, rows[:, 3].astype(np.float32), classes=3, units=units)


ROW = st.tuples(
    st.sampled_from([-1.0, -0.3, 0.0, 0.9, 1.0]),
    st.sampled_from([0.0, 0.0, 1.0]),
    st.integers(0, 3),
    st.integers(0, 2),
)


@settings(max_examples=200, deadline=None)
@given(
    others=st.lists(ROW, max_size=25),
    patient=st.lists(ROW, min_size=1, max_size=3),
    least=st.integers(2, 30),
    most=st.integers(1, 30),
    alike=st.booleans(),
)
def test_one_patient_of_one_or_more_records_stays_within_each_bound(
    others: list[tuple[float, ...]], patient: list[tuple[float, ...]], least: int, most: int, alike: bool
) -> None:
    asked = StatisticsTerms(
        statistics=(
            LabelSkewStatistic(least=least),
            SizeSkewStatistic(most=most),
            ColumnSkewStatistic(column="x"),
            ColumnSkewStatistic(column="c"),
        )
    )
    if alike and others:
        others = [others[0]] * len(others)
    every = np.array([*others, *patient], dtype=np.float64)
    units = np.array([*range(len(others)), *[len(others)] * len(patient)], dtype=np.int64)
    known = len(others)
    rest = _records(every[:known].reshape(known, 4), units[:known])
    assert max(_moved(asked, _records(every, units), rest)) <= 1 + 1e-9


@pytest.mark.parametrize("classes_alike", [40, 400])
def test_the_bounds_of_label_and_column_are_nearly_reached(classes_alike: int) -> None:
    """A bound that nothing reaches would be noise for nothing: a rare label, a number at the other end."""
    rest = np.tile([-1.0, 0.0, 0.0, 0.0], (classes_alike, 1))
    other = np.array([[1.0, 0.0, 1.0, 1.0]])
    asked = StatisticsTerms(
        statistics=(
            LabelSkewStatistic(least=classes_alike),
            SizeSkewStatistic(most=classes_alike + 1),
            ColumnSkewStatistic(column="x"),
            ColumnSkewStatistic(column="c"),
        )
    )
    label, size, number, category = _moved(asked, _records(np.vstack([rest, other])), _records(rest))
    assert label > 0.75
    assert size > 0.95
    assert number > 0.9
    assert category > 0.95


def test_without_the_fill_a_small_silo_would_break_the_bound() -> None:
    """One patient of two turns the shares by half: dividing by the silo's own n alone is no mechanism."""
    asked = StatisticsTerms(statistics=(LabelSkewStatistic(least=50),))
    rest, both = np.array([[0.0, 0, 0, 0]]), np.array([[0.0, 0, 0, 0], [0.0, 0, 0, 1]])
    (block,) = blocks_of(asked, SCHEMA)
    unfilled = np.array([0.5, 0.5]) - np.array([1.0, 0.0])
    assert math.hypot(*unfilled) > 5 * block.bound
    assert _moved(asked, _records(both), _records(rest))[0] <= 1
