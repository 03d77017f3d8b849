"""Admission of events that are chosen while earlier results are known: what is admitted never passes the cap.

Privacy-loss distributions hold for schedules fixed ahead. A filter holds for any adversary who picks the next
event, or stops, from everything released so far, because it adds up a quantity whose composition is proved
for that case and admits nothing beyond a limit fixed at the start:

- full batches: μ² (Koskela, Tobaben, Honkela 2022, arXiv 2209.15596; Smith, Thakurta 2022, arXiv 2210.17520);
- sampled steps: Rényi divergence at *one* order, named before the first event (Feldman, Zrnic 2020,
  arXiv 2008.11193). Taking afterwards whichever order came out best is not covered by the proof.

Values in, values out: a filter that has admitted is a new value, for the caller to record before anything
runs. Nothing is ever refunded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from privacy.dp.accountant import full_batch_mu
from privacy.dp.events import Adjacency, Event, Stated, unmixed
from privacy.dp.full_batch import is_full_batch, mu_squared
from privacy.dp.renyi import ORDERS, renyi_divergences
from privacy.errors import BudgetExhausted, ConfigurationError


@dataclass(frozen=True)
class GaussianFilter:
    """Admits full batches while μ² stays within what (ε, δ) allows: exact, nothing is lost to adaptivity."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    spent: float = 0.0
    """μ² of what was admitted, rounded up."""

    @property
    def limit(self) -> float:
        """Largest μ² that is (ε, δ)-DP, rounded down."""
        return full_batch_mu(self.epsilon, self.delta) ** 2

    def admit(self, event: Event | Stated) -> Self:
        """The filter after ``event``.

        Raises:
            BudgetExhausted: it would pass the cap; this filter goes on admitting smaller ones.
            ConfigurationError: a sampled event: its cost has no μ. MixedAdjacency: of the other adjacency.
        """
        (bare,) = unmixed([event], self.adjacency)
        if not is_full_batch(bare):
            raise ConfigurationError(
                f"sample_rate: expected 1 in a filter of full batches, got {bare.sample_rate!r}; "
                "open a RenyiFilter for sampled events"
            )
        return replace(self, spent=_within("μ²", self.spent, mu_squared([bare], self.adjacency), self.limit))


@dataclass(frozen=True)
class RenyiFilter:
    """Admits any events while their Rényi divergence at one order stays within what (ε, δ) allows."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    order: int
    """One of ``ORDERS``, chosen from what is public before the first event; see ``opened_for``."""
    spent: float = 0.0
    """Rényi divergence at ``order`` of what was admitted, rounded up."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS or not self.limit > 0:
            raise ConfigurationError(
                f"order: expected one of {ORDERS[0]} to {ORDERS[-1]} with room at ε = {self.epsilon:g} "
                f"and δ = {self.delta:g}, got {self.order}; take a higher order or a larger ε"
            )

    @classmethod
    def opened_for(
        cls, expected: Iterable[Event | Stated], epsilon: float, delta: float, adjacency: Adjacency
    ) -> Self:
        """The filter whose order admits the most repetitions of what is expected; others may come.

        Raises:
            ConfigurationError: no order leaves any room, or nothing is expected.
        """
        costs = sum(renyi_divergences(event, adjacency) for event in unmixed(expected, adjacency))
        if isinstance(costs, int):
            raise ConfigurationError("expected: expected at least one event to choose the order by, got none")
        room = {
            order: _limit(epsilon, delta, order) / cost for order, cost in zip(ORDERS, costs, strict=True)
        }
        return cls(epsilon, delta, adjacency, max(room, key=room.__getitem__))

    @property
    def limit(self) -> float:
        """Largest divergence at ``order`` that is (ε, δ)-DP."""
        return _limit(self.epsilon, self.delta, self.order)

    def admit(self, event: Event | Stated) -> Self:
        """The filter after ``event``.

        Raises:
            BudgetExhausted: it would pass the cap; this filter goes on admitting smaller ones.
            MixedAdjacency: of the other adjacency.
        """
        (bare,) = unmixed([event], self.adjacency)
        cost = float(renyi_divergences(bare, self.adjacency)[ORDERS.index(self.order)])
        return replace(
            self, spent=_within(f"Rényi divergence, order {self.order}", self.spent, cost, self.limit)
        )


def _limit(epsilon: float, delta: float, order: int) -> float:
    """Canonne, Kamath, Steinke 2020, Proposition 12: (α, ρ)-RDP is (ρ + log(1−1/α) − log(δα)/(α−1), δ)-DP."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


def epsilon_of(divergence: float, order: int, delta: float) -> float:
    """ε at δ of a Rényi divergence at ``order``: at a filter's limit it is the filter's own ε."""
    return max(0.0, math.nextafter(divergence - _limit(0.0, delta, order), math.inf))


def _within(what: str, spent: float, cost: float, limit: float) -> float:
    """What is spent after ``cost``, rounded up: many small charges add to no less than their sum."""
    after = math.nextafter(spent + cost, math.inf)
    # Written so that NaN and infinity fail.
    if not after <= limit:
        raise BudgetExhausted(
            f"{what}: expected at most {limit:.6g} in all, got {after:.6g} with this event; "
            "ask for more noise or fewer steps"
        )
    return after
