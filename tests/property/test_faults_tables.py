"""For all damage to a Parquet file and all values in a database: records, or an error of ours."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from privacy.errors import ConfigurationError
from silo_agent.data.parquet_table import read_parquet_table
from silo_agent.data.sql_table import read_sql_table
from silo_agent.dataset_settings import SqlSource
from tests.unit.silo_agent.adapters_tables import COLUMNS, by_column, table_schema

FEW = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "table.parquet"
    pq.write_table(pa.table(by_column()), path)
    return path.read_bytes()


@FEW
@given(data=st.data())
def test_a_damaged_parquet_file_is_read_or_refused(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = bytearray(whole)
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    places = st.integers(0, len(raw) - 1) | st.integers(footer, len(raw) - 1)
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(places)] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    path.write_bytes(raw[: data.draw(st.just(len(raw)) | st.integers(0, len(raw)))])
    with contextlib.suppress(ConfigurationError):
        read_parquet_table(path, table_schema(), "record")


VALUES: st.SearchStrategy[Any] = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.binary(max_size=8)
    | st.text(max_size=8)
    | st.sampled_from(("9" * 5000, "1e999", "\x00", "0x1", "1_0", "٣"))
)


@FEW
@given(rows=st.lists(st.tuples(*[VALUES] * len(COLUMNS)), max_size=4), as_text=st.booleans())
@example(rows=[("", "1", "50", "0", b"\xff\xfe")], as_text=True)
def test_odd_values_of_a_database_are_records_or_refused(
    rows: list[tuple[Any, ...]], as_text: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SQLite takes any value in any column; as text, bytes that are no UTF-8 reach the driver."""
    path = tmp_path_factory.getbasetemp() / "odd.db"
    path.unlink(missing_ok=True)
    columns = ", ".join(f"CAST({name} AS TEXT) AS {name}" if as_text else name for name in COLUMNS)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE visits ({', '.join(COLUMNS)})")
        database.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * len(COLUMNS))})", rows)  # noqa: S608 - our own names
    source = SqlSource(url=f"sqlite:///{path}", query=f"SELECT {columns} FROM visits")  # noqa: S608 - as above
    with contextlib.suppress(ConfigurationError):
        read_sql_table(source, table_schema(), "record")
