"""One record's label as numbers, from the cells of its row. What does not fit is refused, never guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from privacy.errors import ConfigurationError
from privacy.labels import AnyLabel, ClassLabel, Label, MaskLabel, RealLabel


def encoded_label(label: AnyLabel, cells: Mapping[str, str], where: str) -> list[float]:
    """The numbers of ``Records.labels`` for one record.

    Args:
        cells: of the label's columns, by name.
        where: file and row, for errors, which do not tell what a cell holds.

    Raises:
        ConfigurationError: a cell is no such label.
    """
    if isinstance(label, Label):
        return [float(finite_number(cells[label.column], _at(where, label.column)) > label.threshold)]
    if isinstance(label, ClassLabel):
        cell = cells[label.column]
        if cell not in label.categories:
            raise ConfigurationError(
                f"{_at(where, label.column)}: its class is none of the job's: {', '.join(label.categories)}"
            )
        return [float(label.categories.index(cell))]
    if isinstance(label, RealLabel):
        value = finite_number(cells[label.column], _at(where, label.column))
        inside = min(max(value, label.low), label.high)
        return [2.0 * (inside - label.low) / (label.high - label.low) - 1.0]
    if isinstance(label, MaskLabel):
        return [_bit(cells[pixel], _at(where, pixel)) for pixel in label.pixels]
    time = finite_number(cells[label.time], _at(where, label.time))
    if time < 0:
        raise ConfigurationError(f"{_at(where, label.time)}: expected a time of 0 or more")
    event = _bit(cells[label.event], _at(where, label.event))
    if time > label.horizon:
        return [1.0, 0.0]
    return [time / label.horizon, event]


def finite_number(cell: str, where: str) -> float:
    """
    Raises:
        ConfigurationError: the cell holds none.
    """
    try:
        value = float(cell)
    except ValueError as error:
        raise ConfigurationError(f"{where}: expected a number") from error
    if not math.isfinite(value):
        raise ConfigurationError(f"{where}: expected a finite number")
    return value


def _bit(cell: str, where: str) -> float:
    value = finite_number(cell, where)
    if value not in (0.0, 1.0):
        raise ConfigurationError(f"{where}: expected 0 or 1")
    return value


def _at(where: str, column: str) -> str:
    return f"{where}, column {column}"
