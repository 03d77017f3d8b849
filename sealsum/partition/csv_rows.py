"""A public CSV as rows of text to be split, and what of it splits go by. Cells go out as they came in."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from sealsum.partition.splits import Partition, Table, principal_component

MOST_CLASSES = 100
_MOST_NAMED = 5


@dataclass(frozen=True)
class CsvRows:
    """A header and its rows, as text."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = field(repr=False)

    def cells(self, column: str) -> list[str]:
        """One column, stripped.

        Raises:
            ConfigurationError: there is no such column.
        """
        at = self.place(column)
        return [row[at].strip() for row in self.rows]

    def place(self, column: str) -> int:
        """Where a column is.

        Raises:
            ConfigurationError: there is no such column.
        """
        if self.columns.count(column) != 1:
            near = difflib.get_close_matches(column, self.columns, _MOST_NAMED) or self.columns[:_MOST_NAMED]
            rest = ", …" if len(near) < len(self.columns) else ""
            raise ConfigurationError(
                f"{self.path}: expected one column {column!r}, got {self.columns.count(column)} among"
                f" {len(self.columns)} ({', '.join(near)}{rest}); correct the name"
            )
        return self.columns.index(column)


def read_rows(path: Path) -> CsvRows:
    """
    Raises:
        ConfigurationError: no CSV in UTF-8 with a header and rows as wide as it.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [tuple(row) for row in csv.reader(file, strict=True) if row] or [()]
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: expected CSV in UTF-8 ({type(error).__name__})") from error
    if not rows:
        raise ConfigurationError(f"{path}: expected a header and rows, got no rows")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigurationError(f"{path}: row {number}: expected {len(header)} cells, got {len(row)}")
    return CsvRows(path, tuple(name.strip() for name in header), tuple(rows))


@dataclass(frozen=True)
class Named:
    """A table to split, and what its classes and groups are called."""

    table: Table
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    order: str
    """The column that orders records, or what stands for it; empty if nothing does."""


def named_table(
    rows: CsvRows, label: str, threshold: float | None, order: str | None, by: str | None, wants_order: bool
) -> Named:
    """What splits go by.

    Args:
        threshold: classes are "not above" and "above" it; else each text of the label is one. order: a
        numeric
            column; left out, the first principal component of all numeric columns. by: the column of groups.
        wants_order: whether the split needs an order.

    Raises:
        ConfigurationError: no such column, more than 100 classes, or no numbers where numbers are needed.
    """
    labels, classes = _classes(rows, label, threshold)
    values, name = (None, "") if not wants_order else _order(rows, order, label)
    groups: NDArray[np.intp] | None = None
    names: tuple[str, ...] = ()
    if by is not None:
        groups, names = _numbered(rows.cells(by))
    return Named(Table(labels, len(classes), values, groups), classes, names, name)


def write_silos(rows: CsvRows, named: Named, split: Partition, label: str, folder: Path) -> list[Path]:
    """One CSV a silo, its labels turned where the split turns them; the paths, in the order of silos.

    Raises:
        ConfigurationError: a silo's file is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    at, paths = rows.place(label), []
    for silo, held in enumerate(split.rows):
        path = folder / f"silo-{silo + 1}.csv"
        if path.exists():
            raise ConfigurationError(f"{path}: is there already; choose another folder")
        called = split.labels(named.table, silo)
        with path.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(rows.columns)
            for row, label_number in zip(held, called, strict=True):
                cells = list(rows.rows[row])
                if split.turned:
                    cells[at] = named.classes[label_number]
                writer.writerow(cells)
        paths.append(path)
    return paths


def _classes(rows: CsvRows, label: str, threshold: float | None) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    cells = rows.cells(label)
    if threshold is not None:
        above = np.array(_numbers(rows, label, cells)) > threshold
        return above.astype(np.intp), (f"{label} ≤ {threshold:g}", f"{label} > {threshold:g}")
    labels, classes = _numbered(cells)
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ConfigurationError(
            f"{rows.path}: expected 2 to {MOST_CLASSES} classes in {label}, got {len(classes)}; of numbers, "
            "--threshold makes two"
        )
    return labels, classes


def _numbered(cells: Sequence[str]) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Each text's place among all distinct ones: by number if all are numbers, else by alphabet."""
    distinct = set(cells)
    numbers = {text: _number(text) for text in distinct}
    known = all(math.isfinite(number) for number in numbers.values())
    names = sorted(
        distinct, key=(lambda text: (numbers[text], text)) if known else (lambda text: (0.0, text))
    )
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[text] for text in cells], dtype=np.intp), tuple(names)


def _order(rows: CsvRows, order: str | None, label: str) -> tuple[NDArray[np.float64], str]:
    if order is not None:
        return np.array(_numbers(rows, order, rows.cells(order))), order
    columns = []
    for column in rows.columns:
        values = np.array([_number(text) for text in rows.cells(column)])
        there = np.isfinite(values)
        # A name or an id is no number; a missing one stands in the middle.
        if column == label or there.mean() < 0.5 or np.ptp(values[there]) == 0:
            continue
        filled = np.where(there, values, np.median(values[there]))
        columns.append((filled - filled.mean()) / filled.std())
    if not columns:
        raise ConfigurationError(
            f"{rows.path}: expected numeric columns to order records by; name one with --order"
        )
    return principal_component(np.column_stack(columns)), "first principal component"


def _numbers(rows: CsvRows, column: str, cells: Sequence[str]) -> list[float]:
    values = [_number(text) for text in cells]
    for number, value in enumerate(values, start=2):
        if not math.isfinite(value):
            raise ConfigurationError(f"{rows.path}: row {number}, column {column}: expected a number")
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
