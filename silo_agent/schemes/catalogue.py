"""Which module is a silo's half of which scheme: one literal table."""

from __future__ import annotations

from collections.abc import Callable

from privacy.errors import Unprocessable
from privacy.plan import SchemeName
from silo_agent.schemes.additive import AdditiveHalf
from silo_agent.schemes.half import SchemeHalf, Seat
from silo_agent.schemes.pairwise import PairwiseHalf

HALVES: dict[SchemeName, Callable[[Seat], SchemeHalf]] = {
    "additive": AdditiveHalf,
    "pairwise": PairwiseHalf,
}


def half_of(seat: Seat) -> SchemeHalf:
    """This silo's half of the round's scheme.

    Raises:
        Unprocessable: this agent cannot take part in rounds of that scheme.
    """
    if seat.plan.scheme not in HALVES:
        raise Unprocessable(f"plan.scheme: expected one of {', '.join(HALVES)}, got {seat.plan.scheme}")
    return HALVES[seat.plan.scheme](seat)
