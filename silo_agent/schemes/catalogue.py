"""Which module is a silo's half of which scheme: one literal table."""

from __future__ import annotations

from collections.abc import Callable

from privacy.errors import Unprocessable
from privacy.plan import SchemeName
from privacy.secagg.he.parameters import assert_available
from silo_agent.schemes.additive import AdditiveHalf
from silo_agent.schemes.half import SchemeHalf, Seat
from silo_agent.schemes.pairwise import PairwiseHalf
from silo_agent.schemes.threshold import ThresholdHalf
from silo_agent.schemes.validity import ValidityHalf


def _additive_half(seat: Seat) -> SchemeHalf:
    """The half of ``additive``: with validity, shares are proven."""
    return AdditiveHalf(seat) if seat.plan.validity is None else ValidityHalf(seat)


def _he_half(seat: Seat) -> SchemeHalf:
    """The half of ``bfv`` and ``ckks``.

    Raises:
        ConfigurationError: TenSEAL is not installed here.
    """
    assert_available()
    # Imported in a round that needs it: TenSEAL is an extra, which federations of other schemes lack.
    from silo_agent.schemes.he import HeHalf

    return HeHalf(seat)


HALVES: dict[SchemeName, Callable[[Seat], SchemeHalf]] = {
    "additive": _additive_half,
    "pairwise": PairwiseHalf,
    "bfv": _he_half,
    "ckks": _he_half,
    "threshold_bfv": ThresholdHalf,
    "threshold_ckks": ThresholdHalf,
}


def half_of(seat: Seat) -> SchemeHalf:
    """This silo's half of the round's scheme.

    Raises:
        Unprocessable: this agent cannot take part in rounds of that scheme.
    """
    if seat.plan.scheme not in HALVES:
        raise Unprocessable(f"plan.scheme: expected one of {', '.join(HALVES)}, got {seat.plan.scheme}")
    return HALVES[seat.plan.scheme](seat)
