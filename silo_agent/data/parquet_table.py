"""Read a hospital's Parquet file under a job's public schema, in bounded batches of the columns it names."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from privacy.errors import ConfigurationError
from privacy.schema import DataSchema
from silo_agent.data.cells import cell_of
from silo_agent.data.encoding import PrivacyUnit, columns_read, encoded, places_of
from silo_agent.data.misfits import Misfits, Row
from silo_agent.data.records import Records

BATCH_ROWS: Final = 4096
_BUFFER_BYTES: Final = 1 << 20


def read_parquet_table(
    path: Path,
    schema: DataSchema,
    unit: PrivacyUnit,
    records_per_unit: int = 1,
    misfits: Misfits | None = None,
) -> Records:
    """Read a Parquet file; columns that the schema does not name are never decoded.

    Raises:
        ConfigurationError: the file is no Parquet, a column is missing or doubled; or as ``encoded``. Rows
            are counted from 1.
    """
    with closing(parquet_rows(path, schema)) as rows:
        return encoded(rows, schema, unit, records_per_unit, misfits)


def parquet_columns(path: Path) -> list[str]:
    """Names of the file's columns; no record is looked at.

    Raises:
        ConfigurationError: the file is no Parquet.
    """
    try:
        names: list[str] = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        raise _no_parquet(path, error) from None
    return names


def parquet_rows(path: Path, schema: DataSchema) -> Generator[Row, None, None]:
    """File and row, and the cells of ``columns_read``; holds one batch of rows at a time.

    Raises:
        ConfigurationError: as ``read_parquet_table``.
    """
    names = parquet_columns(path)
    places_of(names, str(path), schema)
    wanted = list(columns_read(schema))
    number = 0
    for batch in _batches(path, wanted):
        columns = [_values(batch.column(column)) for column in wanted]
        for values in zip(*columns, strict=True):
            number += 1
            where = f"{path}: row {number}"
            yield where, [cell_of(value, where, column) for column, value in zip(wanted, values, strict=True)]


def _values(column: Any) -> list[Any]:
    """A column of a batch as Python's values; one that Python has none for, such as a date in the year 20000,
    as a Parquet value of its own, which has no cell text."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        return [_value(one) for one in column]
    return values


def _value(one: Any) -> Any:
    try:
        return one.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return one


def _batches(path: Path, columns: list[str]) -> Iterator[Any]:
    try:
        # Buffered, so that a row group as large as the file is not read whole.
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        # Without its cause: Arrow's words may quote what a page holds.
        raise _no_parquet(path, error) from None


def _no_parquet(path: Path, error: OSError | pa.ArrowException) -> ConfigurationError:
    reason = getattr(error, "strerror", None)
    if reason:
        return ConfigurationError(f"{path}: cannot be read ({reason})")
    return ConfigurationError(f"{path}: expected a Parquet file ({type(error).__name__})")
