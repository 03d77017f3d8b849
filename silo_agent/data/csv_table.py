"""Read a hospital's CSV under a job's public schema, row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from privacy.errors import ConfigurationError
from privacy.schema import DataSchema
from silo_agent.data.encoding import PrivacyUnit, encoded, places_of
from silo_agent.data.misfits import Misfit, Misfits
from silo_agent.data.records import Records


def read_csv_table(
    path: Path,
    schema: DataSchema,
    unit: PrivacyUnit,
    records_per_unit: int = 1,
    misfits: Misfits | None = None,
) -> Records:
    """Read a UTF-8 CSV with a header; columns that the schema does not name are ignored.

    A row with another number of cells than the header is a misfit.

    Raises:
        ConfigurationError: the file cannot be read, a column is missing or doubled; or as ``encoded``.
    """
    with _opened(path) as rows:
        header = _header(rows)
        places = places_of(header, str(path), schema)
        picked = (
            row if isinstance(row, Misfit) else (row[0], [row[1][place] for place in places])
            for row in _rows(rows, path, header)
        )
        return encoded(picked, schema, unit, records_per_unit, misfits)


def csv_rows(path: Path) -> Iterator[tuple[str, dict[str, str]] | Misfit]:
    """File and row, and all cells by column; no schema is asked.

    Raises:
        ConfigurationError: the file cannot be read, or a column is doubled.
    """
    with _opened(path) as rows:
        header = _header(rows)
        if len(set(header)) != len(header):
            raise ConfigurationError(f"{path}: expected each column once in the header")
        for row in _rows(rows, path, header):
            yield row if isinstance(row, Misfit) else (row[0], dict(zip(header, row[1], strict=True)))


def csv_columns(path: Path) -> list[str]:
    """Names of a CSV file's columns; no record is looked at."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return _header(csv.reader(file))


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield csv.reader(file, strict=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: expected CSV in UTF-8 ({type(error).__name__})") from error


def _header(rows: Iterator[list[str]]) -> list[str]:
    return [name.strip() for name in next(rows, [])]


def _rows(
    rows: Iterator[list[str]], path: Path, header: Sequence[str]
) -> Iterator[tuple[str, list[str]] | Misfit]:
    for number, cells in enumerate(rows, start=2):
        if not cells:
            continue
        where = f"{path}: row {number}"
        if len(cells) != len(header):
            yield Misfit(where, None, f"expected {len(header)} cells, got {len(cells)}")
        else:
            yield where, [cell.strip() for cell in cells]
