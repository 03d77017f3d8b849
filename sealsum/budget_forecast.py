"""What a job would cost a ledger, what is left, and how many rounds fit at which noise. Values in and out.

Asks the very rules that a silo's ledger admits by, on a copy of its account; writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from privacy.dp.events import DpEvent, fallback_event, round_event
from privacy.dp.grid import on_grid
from privacy.errors import ConfigurationError
from privacy.ids import Digest
from privacy.plan import DpTerms, TrainingTerms
from silo_agent.ledger.admission import CapReached, Quote, assert_within_caps, quote
from silo_agent.ledger.entries import Opening
from silo_agent.ledger.spending import Account, JobCharge

NOISE = (0.5, 0.75, 1.5, 2.0, 4.0)
"""The table's noise, relative to the job's."""
MOST_ROUNDS = 100_000
"""Where the search for rounds ends: no job comes near it."""
_GRID_DIGITS = 2
_NEW = Digest("0" * 64)
"""A job that is not signed yet has no digest; no ledger holds this one."""


@dataclass(frozen=True)
class Asked:
    """A job's terms as far as they cost anything."""

    job: str
    dataset: str
    rounds: int
    event: DpEvent
    fallback: DpEvent | None
    delta: float


@dataclass(frozen=True)
class Room:
    """How many rounds fit at a noise multiplier."""

    noise_multiplier: float
    rounds: int
    cap: str
    """Which cap the next round would pass; empty where none is in sight."""
    epsilon: float
    """Of these rounds together."""
    fallback: float


@dataclass(frozen=True)
class Forecast:
    """A job before one ledger."""

    opening: Opening
    before: Quote
    """The account as it is; costs of the job are 0."""
    after: Quote
    """The account with all of the job's rounds."""
    refused_by: str
    """The cap that the whole job would pass; empty if it would be admitted."""
    rooms: tuple[Room, ...]
    """The first is at the job's own noise, the others follow by noise."""


def asked_of(job: str, dataset: str, rounds: int, dp: DpTerms | None, training: TrainingTerms) -> Asked:
    """What a job file asks of a ledger.

    Raises:
        ConfigurationError: it runs without DP, so no ledger can say what it costs.
    """
    if dp is None:
        raise ConfigurationError("dp: expected terms to price, got none; such a job costs without measure")
    return Asked(job, dataset, rounds, round_event(dp, training), fallback_event(dp, training), dp.delta)


def forecast(asked: Asked, account: Account, now: datetime) -> Forecast:
    """Put the job before a ledger's account.

    Raises:
        ConfigurationError: the ledger has no open entry, so its caps are unknown.
    """
    opening = account.opening
    if opening is None:
        raise ConfigurationError("ledger: expected one with an open entry; start the silo's agent once")
    charge = JobCharge(asked.job, asked.dataset, asked.delta, asked.event, asked.fallback)
    after = quote(opening, account, _NEW, charge, asked.rounds, now)
    own = _room(opening, account, charge, now, guess=asked.rounds)
    return Forecast(
        opening=opening,
        before=quote(opening, account, _NEW, charge, 0, now),
        after=after,
        refused_by=_first_cap(after, opening),
        rooms=(own, *_table(opening, account, charge, now, own)),
    )


def _table(
    opening: Opening, account: Account, charge: JobCharge, now: datetime, own: Room
) -> tuple[Room, ...]:
    rooms = []
    for factor in NOISE:
        scaled = _scaled(charge, factor)
        # Rounds grow about with the square of the noise: a guess to search around.
        guess = max(1, min(MOST_ROUNDS, round(own.rounds * factor**2)))
        rooms.append(_room(opening, account, scaled, now, guess))
    return tuple(rooms)


def _scaled(charge: JobCharge, factor: float) -> JobCharge:
    event = charge.event
    noisier = on_grid(
        event.model_copy(update={"noise_multiplier": event.noise_multiplier * factor}), _GRID_DIGITS
    )
    noisier = noisier.model_copy(update={"sample_rate": event.sample_rate})
    own = charge.fallback
    if own is not None:
        share = own.noise_multiplier / event.noise_multiplier
        own = own.model_copy(update={"noise_multiplier": noisier.noise_multiplier * share})
    return replace(charge, event=noisier, fallback=own)


def _room(opening: Opening, account: Account, charge: JobCharge, now: datetime, guess: int) -> Room:
    """The most rounds that pass, by doubling from a guess and halving between: costs grow with rounds."""

    def cap_at(rounds: int) -> str:
        return _first_cap(quote(opening, account, _NEW, charge, rounds, now), opening)

    low, high = 0, guess
    while high <= MOST_ROUNDS and not cap_at(high):
        low, high = high, 2 * high
    if high > MOST_ROUNDS:
        low, high, cap = MOST_ROUNDS, MOST_ROUNDS, ""
    else:
        cap = cap_at(high)
    while high - low > 1:
        middle = (low + high) // 2
        passed = cap_at(middle)
        low, high, cap = (low, middle, passed) if passed else (middle, high, cap)
    return Room(charge.event.noise_multiplier, low, cap, charge.epsilon_of(low), charge.fallback_of(low))


def _first_cap(quoted: Quote, opening: Opening) -> str:
    try:
        assert_within_caps(quoted, opening)
    except CapReached as refusal:
        return refusal.cap
    return ""
