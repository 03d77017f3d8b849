"""What ran, apart from what it costs. Ledgers store events, so a better accountant can re-price the past."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from privacy.canonical import Frozen, Real
from privacy.errors import ConfigurationError
from privacy.plan import DpTerms, TrainingTerms

Adjacency: TypeAlias = Literal["add_remove", "replace_one"]
"""Which two datasets are neighbours: one has a unit more than the other, or another unit in its place."""
ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace_one")


class DpEvent(Frozen):
    """``steps`` Gaussian mechanisms, each on a Poisson sample of the unit (plain Gaussian at rate 1).

    The noise multiplier is relative to the sensitivity of one unit under add/remove adjacency.
    """

    mechanism: Literal["poisson_gaussian"] = "poisson_gaussian"
    sample_rate: Annotated[Real, Field(gt=0, le=1)]
    noise_multiplier: Annotated[Real, Field(gt=0)]
    steps: Annotated[int, Field(ge=1)]


class CappedEvent(Frozen):
    """As ``DpEvent``, but of a sample larger than ``batch_cap`` only a random ``batch_cap`` units are used.

    Whether the cap bites depends on how many units there are, and that number is secret: what is stated and
    charged is a public upper bound of it.
    """

    mechanism: Literal["capped_poisson_gaussian"] = "capped_poisson_gaussian"
    sample_rate: Annotated[Real, Field(gt=0, le=1)]
    noise_multiplier: Annotated[Real, Field(gt=0)]
    steps: Annotated[int, Field(ge=1)]
    batch_cap: Annotated[int, Field(ge=1)]
    units_at_most: Annotated[int, Field(ge=1)]


Event: TypeAlias = DpEvent | CappedEvent


@dataclass(frozen=True)
class Stated:
    """An event together with the adjacency that somebody stated it under."""

    event: Event
    adjacency: Adjacency


class MixedAdjacency(ConfigurationError):
    """One composition was to hold events of two adjacencies: their ε mean different things."""


def round_event(dp: DpTerms, training: TrainingTerms) -> DpEvent:
    """The event of one round under a plan's terms."""
    return DpEvent(
        sample_rate=dp.sample_rate,
        noise_multiplier=dp.charged_noise_multiplier,
        steps=training.local_steps,
    )


def fallback_event(dp: DpTerms, training: TrainingTerms) -> DpEvent | None:
    """The same by one silo's own noise: all that is left if the secure sum fails. ``None`` with local noise,
    which is all of it."""
    if dp.noise_shares is None:
        return None
    whole = round_event(dp, training)
    return whole.model_copy(update={"noise_multiplier": whole.noise_multiplier / math.sqrt(dp.noise_shares)})


def unmixed(events: Iterable[Event | Stated], adjacency: Adjacency) -> tuple[Event, ...]:
    """The bare events, once each that states an adjacency states this one.

    Raises:
        MixedAdjacency: one of them states the other.
    """
    bare: list[Event] = []
    for number, one in enumerate(events, start=1):
        if isinstance(one, Stated):
            if one.adjacency != adjacency:
                raise MixedAdjacency(
                    f"adjacency: expected {adjacency} in every event of a composition, got {one.adjacency} "
                    f"in event {number}; price the two adjacencies apart, they do not add up"
                )
            one = one.event
        bare.append(one)
    return tuple(bare)


def merged(events: Iterable[Event]) -> tuple[Event, ...]:
    """The same composition with equal mechanisms counted together, sorted: a key for caches."""
    steps: Counter[Event] = Counter()
    for event in events:
        steps[event.model_copy(update={"steps": 1})] += event.steps
    return tuple(one.model_copy(update={"steps": steps[one]}) for one in sorted(steps, key=_order))


def _order(event: Event) -> tuple[float, float, int, int]:
    cap, units = (event.batch_cap, event.units_at_most) if isinstance(event, CappedEvent) else (0, 0)
    return event.sample_rate, event.noise_multiplier, cap, units
