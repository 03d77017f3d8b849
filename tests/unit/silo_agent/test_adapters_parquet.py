"""Parquet claims: the records of the same CSV, errors by row and column, never more than a batch at once."""

from __future__ import annotations

import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privacy.errors import ConfigurationError
from silo_agent.data.cells import cell_text
from silo_agent.data.parquet_table import parquet_columns, parquet_rows, read_parquet_table
from silo_agent.data.sources import columns_of, read_dataset
from silo_agent.dataset_settings import DatasetSettings
from tests.unit.silo_agent.adapters_tables import AGE, ROWS, assert_same, by_column, table_schema, through_csv


def _written(folder: Path, **changes: Any) -> Path:
    path = folder / "table.parquet"
    pq.write_table(pa.table({**by_column(), **changes}), path)
    return path


def test_a_parquet_file_gives_the_records_of_the_same_csv(tmp_path: Path) -> None:
    records = read_parquet_table(_written(tmp_path), table_schema(), "patient")
    assert_same(records, through_csv(tmp_path))
    assert len(records) == len(ROWS)
    assert records.patients == ("101", "102", "103", "104")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "1"),
        (63.0, "63"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e300, repr(1e300)),
        (7, "7"),
        (Decimal("1.50"), "1.50"),
        (" f ", "f"),
        (date(2026, 1, 2), "2026-01-02"),
        (float("nan"), "nan"),
    ],
)
def test_a_value_is_the_text_that_a_csv_would_hold(value: object, text: str) -> None:
    told = cell_text(value, "row 1", "age")
    assert told == text or float(told) == float(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"age": [50.0, float("nan"), 1.0, 1.0]}, "row 2, column age: expected a finite number"),
        ({"sex": ["1", "2", "SECRET", "1"]}, "row 3, column sex: its category is none of the job's: 1, 2"),
        ({"mrn": [1, 2, 3, None]}, "row 4, column mrn: expected a patient id, got nothing"),
        ({"mrn": [1, 2, 2, 3]}, "row 3, column mrn: this patient has a record above"),
        ({"age": [[1.0], [2.0], [3.0], [4.0]]}, "row 1, column age: expected a number, .* got list"),
        ({"sick": [b"SECRET"] * 4}, "row 1, column sick: expected a number, .* got bytes"),
    ],
)
def test_what_does_not_fit_is_refused_by_file_row_and_column(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"table\.parquet: {message}") as caught:
        read_parquet_table(_written(tmp_path, **changes), table_schema(), "patient")
    assert "SECRET" not in str(caught.value)


def test_a_missing_column_a_missing_file_and_another_format_are_named(tmp_path: Path) -> None:
    other = table_schema(features=(AGE.model_copy(update={"column": "bmi"}),))
    with pytest.raises(ConfigurationError, match="expected one column 'bmi' in the header, got 0"):
        read_parquet_table(_written(tmp_path), other, "patient")
    with pytest.raises(ConfigurationError, match=r"none\.parquet: cannot be read"):
        parquet_columns(tmp_path / "none.parquet")
    (tmp_path / "csv.parquet").write_text("age\n1\n")
    with pytest.raises(ConfigurationError, match="expected a Parquet file"):
        parquet_columns(tmp_path / "csv.parquet")


def test_a_damaged_page_is_refused_and_not_quoted(tmp_path: Path) -> None:
    path = _written(tmp_path)
    whole = bytearray(path.read_bytes())
    pages = slice(4, -8 - int.from_bytes(whole[-8:-4], "little"))  # what lies before the footer
    whole[pages] = b"\xff" * len(whole[pages])
    path.write_bytes(whole)
    with pytest.raises(ConfigurationError, match=r"table\.parquet: "):
        read_parquet_table(path, table_schema(), "patient")


def test_of_one_row_group_as_large_as_the_file_only_a_batch_is_held(tmp_path: Path) -> None:
    """15 MB beside the job's columns, and 1.5 MB in them, all in one row group."""
    count, generator = 15_000, np.random.default_rng(1)
    table = pa.table(
        {
            "note": [generator.bytes(1000) for _ in range(count)],
            "age": generator.uniform(20, 80, count),
            "sex": ["1"] * count,
            "sick": [0] * count,
            "mrn": [f"{number:060d}" for number in range(count)],
        }
    )
    path = tmp_path / "large.parquet"
    pq.write_table(table, path, row_group_size=count, use_dictionary=False)
    whole = table.nbytes
    del table
    before = most = pa.total_allocated_bytes()
    rows = 0
    for rows, _ in enumerate(parquet_rows(path, table_schema()), start=1):
        if rows % 500 == 0:
            most = max(most, pa.total_allocated_bytes())
    assert rows == count
    assert most - before < whole / 5


def test_silo_yaml_chooses_the_adapter_and_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = DatasetSettings(adapter="parquet", path=_written(tmp_path), purpose=("p",), patient_id="mrn")
    assert_same(read_dataset(dataset, table_schema(), "patient", 1), through_csv(tmp_path))
    assert columns_of(dataset) == [*by_column()]
    monkeypatch.setitem(sys.modules, "silo_agent.data.parquet_table", None)
    with pytest.raises(ConfigurationError, match=r"adapter parquet needs .*sealsum\[data\]"):
        columns_of(dataset)
