"""A typed value as the cell text that a CSV of the same table would hold; what has none says so.

So a job's schema, which speaks of cell texts, means the same under every adapter.
"""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from uuid import UUID

from silo_agent.data.misfits import Cell, Misfit


def cell_text(value: object, where: str, column: str) -> str:
    """``""`` for nothing, ``1`` and ``0`` for truth, whole numbers without a point, dates in ISO 8601.

    Raises:
        Misfit: the value is a list, a structure or bytes.
    """
    match value:
        case None:
            return ""
        case str():
            return value.strip()
        case bool():
            return str(int(value))
        case int() | UUID():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case Decimal():
            return f"{value:f}"
        case date() | time():
            return value.isoformat()
        case _:
            told = f"expected a number, a text, a date or nothing, got {type(value).__name__}"
            raise Misfit(where, column, told)


def cell_of(value: object, where: str, column: str) -> Cell:
    """``cell_text``, or why there is none."""
    try:
        return cell_text(value, where, column)
    except Misfit as misfit:
        return misfit
