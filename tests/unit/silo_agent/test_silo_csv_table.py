"""CSV claims: the record is what the schema says, and whatever does not fit names its row and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.schema import CategoricalFeature, DataSchema, Label, NumericFeature
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.encoding import _scaled
from silo_agent.data.records import Records, assert_enough

AGE = NumericFeature(column="age", low=20, high=80, impute=50, missing=("", "0"), indicator=True)
SEX = CategoricalFeature(column="sex", categories=("f", "m"), missing=("", "?"), indicator=True)
HEADER = "patient_id,age,sex,num"


def _schema(**changes: Any) -> DataSchema:
    fields = {
        "features": (AGE, SEX),
        "label": Label(column="num", threshold=0),
        "patient_id": "patient_id",
        **changes,
    }
    return DataSchema(**fields)


def _read(tmp_path: Path, text: str, unit: Any = "patient", **changes: Any) -> Records:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return read_csv_table(path, _schema(**changes), unit)


def test_numbers_are_scaled_clamped_and_imputed_and_categories_are_one_hot(tmp_path: Path) -> None:
    rows = "p1,50,f,0\np2,95,m,2\np3,0,?,1\np4,35,,0"
    records = _read(tmp_path, f"{HEADER}\n{rows}\n")
    np.testing.assert_array_equal(
        records.features,
        [[0, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [-0.5, 0, 0, 0, 1]],
    )
    np.testing.assert_array_equal(records.labels, [0, 1, 1, 0])
    assert records.patients == ("p1", "p2", "p3", "p4")
    assert records.features.dtype == records.labels.dtype == np.float32


def test_columns_may_stand_in_any_order_with_a_byte_order_mark_and_others_beside(tmp_path: Path) -> None:
    records = _read(tmp_path, "\ufeffnum,other,sex,age,patient_id\r\n1,x,f,80,p1\r\n")
    np.testing.assert_array_equal(records.features, [[1, 0, 1, 0, 0]])


def test_a_long_record_is_scaled_down_to_its_norm(tmp_path: Path) -> None:
    records = _read(tmp_path, f"{HEADER}\np1,80,f,0\np2,50,?,0", record_norm=0.5, features=(AGE,))
    np.testing.assert_allclose(records.features, [[0.5, 0], [0, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\np1,old,f,0", "row 2, column age: expected a number"),
        (f"{HEADER}\np1,nan,f,0", "row 2, column age: expected a finite number"),
        (f"{HEADER}\np1,50,f,0\np2,50,x,0", "row 3, column sex: its category is none of the job's: f, m"),
        (f"{HEADER}\np1,50,f,", "row 2, column num: expected a number"),
        (f"{HEADER}\n,50,f,0", "row 2, column patient_id: expected a patient id"),
        (f"{HEADER}\np1,50,f", "row 2: expected 4 cells, got 3"),
        (f"{HEADER}\np1,50,f,0\np1,51,f,0", "row 3, column patient_id: this patient has a record above"),
        ("patient_id,age,num\np1,50,0", "expected one column 'sex' in the header, got 0"),
        ("patient_id,age,sex,num,age\n", "expected one column 'age' in the header, got 2"),
        ("", "expected one column 'age'"),
        (f'{HEADER}\np1,"50,f,0', "expected CSV in UTF-8"),
    ],
)
def test_what_does_not_fit_is_refused_by_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _read(tmp_path, text)


def test_an_error_does_not_quote_the_patients_cell(tmp_path: Path) -> None:
    for text in (f"{HEADER}\nsecret-7,SECRET,f,0", f"{HEADER}\nsecret-7,50,SECRET,0"):
        with pytest.raises(ConfigurationError) as caught:
            _read(tmp_path, text)
        assert "secret" not in str(caught.value).lower()


def test_by_record_a_patient_may_come_twice(tmp_path: Path) -> None:
    assert len(_read(tmp_path, f"{HEADER}\np1,50,f,0\np1,51,f,0", unit="record")) == 2


def test_a_missing_file_and_another_encoding_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_csv_table(tmp_path / "none.csv", _schema(), "patient")
    (tmp_path / "latin.csv").write_bytes(b"patient_id,age,sex,num\n\xe9,1,f,0\n")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_csv_table(tmp_path / "latin.csv", _schema(), "patient")


def test_too_few_records_are_refused_without_their_number(tmp_path: Path) -> None:
    records = _read(tmp_path, f"{HEADER}\np1,50,f,0\np2,51,f,0\np3,51,f,0")
    assert_enough(records, 3)
    with pytest.raises(PolicyRefusal) as caught:
        assert_enough(records, 4)
    assert "3" not in str(caught.value)


def test_records_do_not_print(tmp_path: Path) -> None:
    records = _read(tmp_path, f"{HEADER}\nsecret,50,f,0")
    assert repr(records).startswith("<silo_agent.data.records.Records object at 0x")  # class and address only


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_scales_into_the_unit_interval(value: float) -> None:
    assert -1.0 <= _scaled(AGE, value) <= 1.0
