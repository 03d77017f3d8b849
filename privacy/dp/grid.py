"""A decimal grid for sampling rates and noise: few distinct mechanisms, and never a cheaper one than asked.

Distinct mechanisms are what accounting costs time for: two hundred take as long as two hundred jobs.
Decimal arithmetic throughout, so that a value on the grid stays where it is.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TypeVar

from privacy.dp.events import CappedEvent, DpEvent

DIGITS = 6
"""Significant digits of calibrated noise: fine enough to meet a target ε within a thousandth."""

E = TypeVar("E", DpEvent, CappedEvent)


def on_grid(event: E, digits: int) -> E:
    """The event at no less sampling and no more noise, both of ``digits`` significant digits."""
    return event.model_copy(
        update={
            "sample_rate": min(1.0, float(_decimal(event.sample_rate, digits, ROUND_CEILING))),
            "noise_multiplier": float(_decimal(event.noise_multiplier, digits, ROUND_FLOOR)),
        }
    )


def noise_at(tick: int, digits: int = DIGITS) -> float:
    """Value number ``tick`` of the grid of ``digits`` significant digits; tick 0 is 1, tick 1 just above."""
    decade, within = divmod(tick, _ticks_a_decade(digits))
    return float(Decimal(10 ** (digits - 1) + within).scaleb(decade - digits + 1))


def tick_at_or_above(noise: float, digits: int = DIGITS) -> int:
    """The first tick whose value is not below ``noise``."""
    value = _decimal(noise, digits, ROUND_CEILING)
    decade = value.adjusted()
    within = int(value.scaleb(digits - 1 - decade)) - _ticks_a_decade(digits) // 9
    return decade * _ticks_a_decade(digits) + within


def _ticks_a_decade(digits: int) -> int:
    ticks: int = 9 * 10 ** (digits - 1)
    return ticks


def _decimal(value: float, digits: int, rounding: str) -> Decimal:
    # From the shortest decimal string, which is what people and ledgers write: 0.1 is on the grid.
    return Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))
