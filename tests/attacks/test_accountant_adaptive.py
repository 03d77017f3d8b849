"""Adversaries who choose the next event from what they have seen never pass a filter's cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.dp.accountant import epsilon, price
from privacy.dp.events import Adjacency, DpEvent, MixedAdjacency, Stated
from privacy.dp.filters import GaussianFilter, RenyiFilter
from privacy.dp.renyi import ORDERS
from privacy.errors import BudgetExhausted, ConfigurationError

EPSILON, DELTA = 2.0, 1e-3
LOSSES = np.linspace(-20, 12, 4801)
Filter = GaussianFilter | RenyiFilter
Array = NDArray[np.float64]


def event(noise: float, rate: float = 1.0, steps: int = 1) -> DpEvent:
    return DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)


@cache
def loss_of(one: DpEvent, removed: bool) -> tuple[Array, Array]:
    """Values and probabilities of one event's privacy loss, with the unit present or absent."""
    noise, rate = one.noise_multiplier, one.sample_rate
    x = np.linspace(-8 * noise, 1 + 8 * noise, 501)
    with_unit, without = (np.exp(-((x - centre) ** 2) / (2 * noise**2)) for centre in (1.0, 0.0))
    present = rate * with_unit + (1 - rate) * without
    ratio = np.log(present) - np.log(without)
    seen, loss = (present, ratio) if removed else (without, -ratio)
    return loss, seen / seen.sum()


def best_attack(start: Filter, menu: Iterable[DpEvent], removed: bool, limit: int = 10**9) -> float:
    """δ at ε that the best adversary reaches: whatever it saw, it asks for what helps most, or stops.

    Backward induction over (privacy loss so far, what the filter has admitted); exact up to the grid.
    """
    menu = tuple(menu)
    stopped = np.maximum(0.0, 1 - np.exp(np.minimum(EPSILON - LOSSES, 0)))
    known: dict[tuple[int, ...], Array] = {}

    def value(state: Filter, asked: tuple[int, ...]) -> Array:
        if asked in known:
            return known[asked]
        best = stopped
        for index, one in enumerate(menu):
            try:
                after = state.admit(one)
            except BudgetExhausted:
                continue
            if sum(asked) == limit:
                continue
            then = value(after, tuple(count + (index == at) for at, count in enumerate(asked)))
            shift, weight = loss_of(one, removed)
            best = np.maximum(
                best, sum(w * np.interp(LOSSES + s, LOSSES, then) for s, w in zip(shift, weight, strict=True))
            )
        known[asked] = best
        return best

    return float(np.interp(0.0, LOSSES, value(start, (0,) * len(menu))))


def room(state: Filter, one: DpEvent) -> int:
    """How often the filter admits ``one``."""
    for count in range(10_000):
        try:
            state = state.admit(one)
        except BudgetExhausted:
            return count
    raise AssertionError("the filter never refuses")


class NeverRefuses(GaussianFilter):
    """What the filter would be without its check."""

    def admit(self, event: DpEvent | Stated) -> NeverRefuses:
        return self


def test_the_best_adaptive_adversary_stays_within_the_gaussian_filter() -> None:
    opened = GaussianFilter(EPSILON, DELTA, "add_remove")
    noise = math.sqrt(5 / opened.limit) * (1 + 1e-12)  # five small ones fill it, or a large and a small one
    reached = best_attack(opened, [event(noise), event(noise / 2)], removed=True)
    assert reached <= DELTA * (1 + 1e-3)
    assert reached == pytest.approx(DELTA, rel=2e-2), "adaptivity costs nothing: the filter is exact"
    unchecked = NeverRefuses(EPSILON, DELTA, "add_remove")
    assert best_attack(unchecked, [event(noise)], removed=True, limit=10) > 10 * DELTA


@pytest.mark.parametrize("removed", [True, False])
def test_the_best_adaptive_adversary_stays_within_the_renyi_filter(removed: bool) -> None:
    menu = [event(1.2, rate=0.4), event(1.8, rate=0.7)]
    opened = RenyiFilter.opened_for(menu, EPSILON, DELTA, "add_remove")
    assert best_attack(opened, menu, removed) <= DELTA
    if removed:  # an absent unit tells little: each step's loss is at most −log(1 − q)
        assert best_attack(opened, menu, removed) > DELTA / 100
        assert best_attack(replace(opened, epsilon=2 * EPSILON), menu, removed) > DELTA


FILTERS: dict[str, Callable[[Adjacency], Filter]] = {
    "full batches": lambda adjacency: GaussianFilter(EPSILON, DELTA, adjacency),
    "sampled": lambda adjacency: RenyiFilter(EPSILON, DELTA, adjacency, 8),
}


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(FILTERS)),
    st.sampled_from(["add_remove", "replace_one"]),
    st.lists(st.tuples(st.sampled_from([2.0, 3.5, 8.0, 20.0]), st.integers(1, 9)), max_size=40),
)
def test_whatever_was_admitted_costs_no_more_than_the_cap(
    kind: str, adjacency: Adjacency, asked: list[tuple[float, int]]
) -> None:
    state = FILTERS[kind](adjacency)
    rate = 1.0 if kind == "full batches" else 0.2
    admitted = []
    for noise, steps in [*asked, (100.0, 1)]:
        one = event(noise, rate, steps)
        try:
            state = state.admit(one)
        except BudgetExhausted:
            continue
        admitted.append(one)
    assert price(admitted, DELTA, adjacency).epsilon <= EPSILON


def test_a_cap_split_into_many_small_charges_is_never_passed_by_rounding() -> None:
    state = GaussianFilter(EPSILON, DELTA, "add_remove")
    one = event(math.sqrt(1000 / state.limit) * (1 - 1e-15))
    admitted = room(state, one)
    assert admitted in (999, 1000)
    assert epsilon([event(one.noise_multiplier, steps=admitted)], DELTA) <= EPSILON


def test_a_refused_event_leaves_room_for_a_smaller_one() -> None:
    state = GaussianFilter(EPSILON, DELTA, "add_remove")
    with pytest.raises(BudgetExhausted, match=r"μ²: expected at most .* ask for more noise or fewer steps"):
        state.admit(event(0.1))
    assert state.admit(event(100.0)).spent > state.spent == 0


def test_a_filter_admits_one_adjacency_and_only_events_that_it_can_charge() -> None:
    for opened in (FILTERS["full batches"]("add_remove"), FILTERS["sampled"]("add_remove")):
        with pytest.raises(MixedAdjacency, match="expected add_remove"):
            opened.admit(Stated(event(50.0), "replace_one"))
        assert opened.admit(Stated(event(50.0), "add_remove")).spent > 0
    with pytest.raises(ConfigurationError, match=r"sample_rate: expected 1 .* open a RenyiFilter"):
        FILTERS["full batches"]("add_remove").admit(event(50.0, rate=0.1))


def test_the_order_is_fixed_before_the_first_event() -> None:
    for order in (2, 1, 513):  # no room at 2: log(1/δ) alone passes ε
        with pytest.raises(ConfigurationError, match="order: expected one of"):
            RenyiFilter(EPSILON, DELTA, "add_remove", order)
    expected = [event(2.0, rate=0.1, steps=10)]
    opened = RenyiFilter.opened_for(expected, EPSILON, DELTA, "add_remove")
    assert opened.order in ORDERS

    others = (replace(opened, order=order) for order in (6, 8, 16, 32))
    assert room(opened, expected[0]) >= max(room(other, expected[0]) for other in others)
    with pytest.raises(ConfigurationError, match="at least one event"):
        RenyiFilter.opened_for([], EPSILON, DELTA, "add_remove")
