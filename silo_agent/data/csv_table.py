"""Read a hospital's CSV under a job's public schema, row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from privacy.errors import ConfigurationError
from privacy.schema import DataSchema
from silo_agent.data.encoding import PrivacyUnit, encoded, places_of
from silo_agent.data.records import Records


def read_csv_table(path: Path, schema: DataSchema, unit: PrivacyUnit, records_per_unit: int = 1) -> Records:
    """Read a UTF-8 CSV with a header; columns that the schema does not name are ignored.

    Raises:
        ConfigurationError: the file cannot be read, a column is missing or doubled, a row has another
            number of cells; or as ``encoded``.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            return encoded(_rows(rows, path, schema), schema, unit, records_per_unit)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: expected CSV in UTF-8 ({type(error).__name__})") from error


def csv_columns(path: Path) -> list[str]:
    """Names of a CSV file's columns; no record is looked at."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return [name.strip() for name in next(csv.reader(file), [])]


def _rows(rows: Iterator[list[str]], path: Path, schema: DataSchema) -> Iterator[tuple[str, list[str]]]:
    header = [name.strip() for name in next(rows, [])]
    places = places_of(header, str(path), schema)
    for number, cells in enumerate(rows, start=2):
        if not cells:
            continue
        where = f"{path}: row {number}"
        if len(cells) != len(header):
            raise ConfigurationError(f"{where}: expected {len(header)} cells, got {len(cells)}")
        yield where, [cells[place].strip() for place in places]
