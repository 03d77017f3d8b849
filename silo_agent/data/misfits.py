"""What a job's schema has no place for, and what becomes of it: refused aloud, or passed over in silence.

Under DP a refusal would answer a question that ε does not count: a schema that leaves a value out asks
whether anybody has it. Passing over is a function of each record by itself, so neighbours stay neighbours
(ADR 0043).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from privacy.errors import ConfigurationError


class Misfit(ConfigurationError):
    """A cell or a record that a job's schema has no place for; says where and why, never what it holds."""

    def __init__(self, where: str, column: str | None, why: str) -> None:
        super().__init__(f"{where}: {why}" if column is None else f"{where}, column {column}: {why}")
        self.column = column
        self.why = why


Cell: TypeAlias = str | Misfit
"""A cell's text, or why it has none."""
Row: TypeAlias = tuple[str, Sequence[Cell]] | Misfit
"""File and row for errors, with the cells of ``columns_read``; or why there is no such row."""


class Misfits(Protocol):
    """What becomes of them."""

    def cell(self, misfit: Misfit) -> None:
        """A feature's cell: the reading ends here, or the cell counts as missing."""
        ...

    def record(self, misfit: Misfit) -> None:
        """A record without a usable patient or label: the reading ends here, or the record is left out."""
        ...


class Refused:
    """Without DP nothing is claimed of single values, and a table that does not fit is a mistake to tell."""

    def cell(self, misfit: Misfit) -> None:
        """
        Raises:
            Misfit: this one.
        """
        raise misfit

    record = cell


class PassedOver:
    """Nobody outside may learn of any. What there was stays here, for the owner: how many, by reason."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str | None, str], int] = {}
        self._records: dict[tuple[str | None, str], int] = {}

    def cell(self, misfit: Misfit) -> None:
        """Count it."""
        self._count(self._cells, misfit)

    def record(self, misfit: Misfit) -> None:
        """Count it."""
        self._count(self._records, misfit)

    @staticmethod
    def _count(among: dict[tuple[str | None, str], int], misfit: Misfit) -> None:
        reason = misfit.column, misfit.why
        among[reason] = among.get(reason, 0) + 1

    @property
    def columns(self) -> tuple[str, ...]:
        """Where there were any; an empty name for rows as a whole."""
        return tuple(sorted({column or "" for column, _ in (*self._cells, *self._records)}))

    @property
    def cells(self) -> dict[tuple[str | None, str], int]:
        """How many cells count as missing, by column and reason: as secret as the records."""
        return dict(self._cells)

    @property
    def records(self) -> dict[tuple[str | None, str], int]:
        """How many records are left out, by column and reason: as secret as the records."""
        return dict(self._records)
