"""How the jobs of a dataset's life compose: ε and δ add up, or a Rényi filter over all of them.

Both hold for jobs chosen after seeing earlier results. Basic composition: Rogers, Roth, Ullman, Vadhan 2016.
The filter: Feldman, Zrnic 2020 (arXiv 2008.11193), under the conditions in docs/privacy.md, of which this
module keeps one: the orders are those that the ledger's opening names, never the best in hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from privacy.dp.events import DpEvent
from privacy.dp.filters import RenyiFilter, epsilon_of
from privacy.dp.renyi import ORDERS, renyi_divergences
from silo_agent.ledger.entries import EpsilonCaps, FilterOrders, Opening
from silo_agent.ledger.spending import JobCharge

_FAINT = DpEvent(sample_rate=1.0, noise_multiplier=1000.0, steps=1)
"""Public stand-in for what jobs are made of: many steps that each tell little."""


@dataclass(frozen=True)
class Lifetime:
    """What jobs come to over a dataset's life."""

    epsilon: float
    fallback: float
    delta: float


def lifetime_of(opening: Opening, jobs: Iterable[JobCharge]) -> Lifetime:
    """Compose what jobs have reserved, as the ledger's opening says."""
    jobs = tuple(job for job in jobs if job.rounds)
    if opening.filter is None:
        return Lifetime(
            epsilon=sum(job.epsilon for job in jobs),
            fallback=sum(job.epsilon_fallback for job in jobs),
            delta=sum(job.delta for job in jobs),
        )
    if not jobs:
        return Lifetime(0.0, 0.0, 0.0)
    orders, delta = opening.filter, opening.delta_max
    whole = _divergence(opening, orders.order, (event for job in jobs for event in job.events))
    own = _divergence(opening, orders.fallback_order, (event for job in jobs for event in job.own_events))
    return Lifetime(
        epsilon=epsilon_of(whole, orders.order, delta),
        fallback=epsilon_of(own, orders.fallback_order, delta),
        delta=delta,
    )


def all_of_it(opening: Opening) -> Lifetime:
    """What counts as spent once entries were lost for good: everything that the caps allow."""
    caps = opening.epsilon
    return Lifetime(caps.lifetime, caps.of_fallback.lifetime, opening.delta_max)


def period_of(opening: Opening, jobs: Iterable[JobCharge], at: datetime) -> Lifetime:
    """What was reserved within the last ``period_days``: ε and δ add up, whatever the lifetime does."""
    start = at - timedelta(days=opening.period_days or 0)
    counted = [(job, job.rounds_after(start)) for job in jobs]
    return Lifetime(
        epsilon=sum(job.epsilon_of(rounds) for job, rounds in counted),
        fallback=sum(job.fallback_of(rounds) for job, rounds in counted),
        delta=sum(job.delta for job, rounds in counted if rounds),
    )


def orders_for(epsilon: EpsilonCaps, delta_max: float) -> FilterOrders:
    """Orders for a new ledger, chosen from its caps alone.

    Raises:
        ConfigurationError: the caps leave no room at any order.
    """
    whole, own = (
        RenyiFilter.opened_for([_FAINT], cap, delta_max, "add_remove").order
        for cap in (epsilon.lifetime, epsilon.of_fallback.lifetime)
    )
    return FilterOrders(order=whole, fallback_order=own)


def kept_orders(first: Opening, opening: Opening) -> Opening:
    """The opening with the orders that the ledger's first one named: they are chosen once."""
    both = first.filter is not None and opening.filter is not None
    return opening.model_copy(update={"filter": first.filter}) if both else opening


def _divergence(opening: Opening, order: int, events: Iterable[DpEvent]) -> float:
    """Rényi divergence at ``order`` of all events, rounded up."""
    place, total = ORDERS.index(order), 0.0
    for event in events:
        cost = float(renyi_divergences(event, opening.adjacency)[place])
        total = math.nextafter(total + cost, math.inf)
    return total
