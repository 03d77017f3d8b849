"""What ran, apart from what it costs. Ledgers store events, so a better accountant can re-price the past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from privacy.canonical import Frozen, Real
from privacy.plan import DpTerms, TrainingTerms


class DpEvent(Frozen):
    """``steps`` Gaussian mechanisms, each on a Poisson sample of the unit (plain Gaussian at rate 1).

    The noise multiplier is relative to the sensitivity of one unit under add/remove adjacency.
    """

    mechanism: Literal["poisson_gaussian"] = "poisson_gaussian"
    sample_rate: Annotated[Real, Field(gt=0, le=1)]
    noise_multiplier: Annotated[Real, Field(gt=0)]
    steps: Annotated[int, Field(ge=1)]


def round_event(dp: DpTerms, training: TrainingTerms) -> DpEvent:
    """The event of one round under a plan's terms."""
    return DpEvent(
        sample_rate=dp.sample_rate, noise_multiplier=dp.noise_multiplier, steps=training.local_steps
    )


def merged(events: Iterable[DpEvent]) -> tuple[DpEvent, ...]:
    """The same composition with equal mechanisms counted together, sorted: a key for caches."""
    steps: Counter[tuple[float, float]] = Counter()
    for event in events:
        steps[event.sample_rate, event.noise_multiplier] += event.steps
    return tuple(
        DpEvent(sample_rate=rate, noise_multiplier=noise, steps=count)
        for (rate, noise), count in sorted(steps.items())
    )
