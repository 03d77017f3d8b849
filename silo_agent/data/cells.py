"""A typed value as the cell text that a CSV of the same table would hold; what has none is refused.

So a job's schema, which speaks of cell texts, means the same under every adapter.
"""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from uuid import UUID

from privacy.errors import ConfigurationError


def cell_text(value: object, where: str, column: str) -> str:
    """``""`` for nothing, ``1`` and ``0`` for truth, whole numbers without a point, dates in ISO 8601.

    Raises:
        ConfigurationError: the value is a list, a structure or bytes.
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
            raise ConfigurationError(
                f"{where}, column {column}: expected a number, a text, a date or nothing, got "
                f"{type(value).__name__}"
            )
