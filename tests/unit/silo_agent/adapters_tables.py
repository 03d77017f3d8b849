"""One small table with everything that a schema can say of it, for the tests of each adapter."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privacy.schema import CategoricalFeature, DataSchema, Label, NumericFeature
from silo_agent.data.cells import cell_text
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records

AGE = NumericFeature(column="age", low=20, high=80, impute=50, missing=("", "0"), indicator=True)
SEX = CategoricalFeature(column="sex", categories=("1", "2"), missing=("",), indicator=True)
COLUMNS = ("note", "sex", "age", "sick", "mrn")
ROWS: tuple[tuple[Any, ...], ...] = (
    ("secret", 1, 50.5, True, 101),
    (None, 2, None, False, 102),
    ("secret", None, 0.0, False, 103),
    ("secret", 1, 95.0, True, 104),
)


def table_schema(**changes: Any) -> DataSchema:
    """Age, sex and the label of ``ROWS``."""
    fields = {"features": (AGE, SEX), "label": Label(column="sick", threshold=0), "patient_id": "mrn"}
    return DataSchema.model_validate(fields | changes)


def by_column(rows: Sequence[Sequence[Any]] = ROWS) -> Mapping[str, list[Any]]:
    """The rows as columns."""
    return {name: [row[number] for row in rows] for number, name in enumerate(COLUMNS)}


def through_csv(folder: Path, rows: Sequence[Sequence[Any]] = ROWS, unit: Any = "patient") -> Records:
    """What the CSV adapter makes of the same table."""
    path = folder / "same.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [COLUMNS, *([cell_text(value, "row", "column") for value in row] for row in rows)]
        )
    return read_csv_table(path, table_schema(), unit)


def assert_same(one: Records, other: Records) -> None:
    """Bit for bit."""
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.patients == other.patients
