"""One record's label as numbers, from the cells of its row. What does not fit is none, never guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from privacy.labels import AnyLabel, ClassLabel, Label, MaskLabel, RealLabel
from silo_agent.data.misfits import Misfit


def encoded_label(label: AnyLabel, cells: Mapping[str, str], where: str) -> list[float]:
    """The numbers of ``Records.labels`` for one record.

    Args:
        cells: of the label's columns, by name.
        where: file and row, for errors, which do not tell what a cell holds.

    Raises:
        Misfit: a cell is no such label.
    """
    if isinstance(label, Label):
        return [float(finite_number(cells[label.column], where, label.column) > label.threshold)]
    if isinstance(label, ClassLabel):
        cell = cells[label.column]
        if cell not in label.categories:
            told = f"its class is none of the job's: {', '.join(label.categories)}"
            raise Misfit(where, label.column, told)
        return [float(label.categories.index(cell))]
    if isinstance(label, RealLabel):
        value = finite_number(cells[label.column], where, label.column)
        inside = min(max(value, label.low), label.high)
        return [2.0 * (inside - label.low) / (label.high - label.low) - 1.0]
    if isinstance(label, MaskLabel):
        return [_bit(cells[pixel], where, pixel) for pixel in label.pixels]
    time = finite_number(cells[label.time], where, label.time)
    if time < 0:
        raise Misfit(where, label.time, "expected a time of 0 or more")
    event = _bit(cells[label.event], where, label.event)
    if time > label.horizon:
        return [1.0, 0.0]
    return [time / label.horizon, event]


def finite_number(cell: str, where: str, column: str) -> float:
    """
    Raises:
        Misfit: the cell holds none.
    """
    try:
        value = float(cell)
    except ValueError as error:
        raise Misfit(where, column, "expected a number") from error
    if not math.isfinite(value):
        raise Misfit(where, column, "expected a finite number")
    return value


def _bit(cell: str, where: str, column: str) -> float:
    value = finite_number(cell, where, column)
    if value not in (0.0, 1.0):
        raise Misfit(where, column, "expected 0 or 1")
    return value
