"""Random schedules priced by others too: dp-accounting's own accountants and Opacus' PRV."""

from __future__ import annotations

from functools import reduce

import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import DpEvent as LibraryEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant

from privacy.dp.accountant import epsilon, epsilon_rdp, price
from privacy.dp.events import Adjacency, DpEvent
from privacy.dp.renyi import ORDERS

EVENTS = st.builds(
    DpEvent,
    sample_rate=st.sampled_from([0.003, 0.01, 0.05, 0.2, 0.6, 1.0]),
    noise_multiplier=st.floats(0.6, 12).map(lambda noise: round(noise, 2)),
    steps=st.integers(1, 2000),
)
SCHEDULES = st.lists(EVENTS, min_size=1, max_size=3)
DELTAS = st.sampled_from([1e-8, 1e-6, 1e-5, 1e-3])
FEW = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def library_event(events: list[DpEvent]) -> LibraryEvent:
    steps = []
    for event in events:
        gaussian: LibraryEvent = GaussianDpEvent(event.noise_multiplier)
        if event.sample_rate < 1:
            gaussian = PoissonSampledDpEvent(event.sample_rate, gaussian)
        steps.append(SelfComposedDpEvent(gaussian, event.steps))
    return ComposedDpEvent(steps)


LIBRARY = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}


def at_least(events: list[DpEvent], delta: float, relation: NeighboringRelation) -> float:
    """A lower bound of the true ε: the same distributions rounded down."""
    parts = [
        from_gaussian_mechanism(
            event.noise_multiplier,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=1e-3,
            sampling_prob=event.sample_rate,
            neighboring_relation=relation,
        ).self_compose(event.steps)
        for event in events
    ]
    return float(reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))


def assert_agrees(events: list[DpEvent], delta: float, adjacency: Adjacency) -> None:
    relation = LIBRARY[adjacency]
    cost = price(events, delta, adjacency)
    # At its default interval, 1e-4; there, too, rounding costs a little.
    oracle = PLDAccountant(relation).compose(library_event(events)).get_epsilon(delta)
    assert cost.epsilon <= oracle * (1 + 1e-3) + 1e-4
    assert cost.epsilon >= at_least(events, delta, relation) * (1 - 1e-9)
    assert cost.epsilon <= cost.epsilon_rdp * (1 + 1e-9)
    if adjacency == "add_remove":
        by_library = RdpAccountant(list(ORDERS)).compose(library_event(events)).get_epsilon(delta)
        assert cost.epsilon_rdp == pytest.approx(by_library, rel=1e-6, abs=1e-7)


@FEW
@given(EVENTS, DELTAS, st.sampled_from(["add_remove", "replace_one"]))
def test_a_sample_of_events_costs_what_dp_accounting_says(
    event: DpEvent, delta: float, adjacency: Adjacency
) -> None:
    oracle = PLDAccountant(LIBRARY[adjacency], 1e-3).compose(library_event([event])).get_epsilon(delta)
    # Where the library's grid is too coarse for so many steps, ours is finer; the sweep checks that.
    assert epsilon([event], delta, adjacency) <= oracle * (1 + 1e-6)
    assert epsilon([event], delta, adjacency) >= at_least([event], delta, LIBRARY[adjacency]) * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@MANY
@given(SCHEDULES, DELTAS, st.sampled_from(["add_remove", "replace_one"]))
@example(
    [
        DpEvent(sample_rate=0.003, noise_multiplier=5.84, steps=1566),
        DpEvent(sample_rate=0.01, noise_multiplier=1.1, steps=183),
    ],
    1e-8,
    "replace_one",
)
def test_many_schedules_cost_what_dp_accounting_says(
    events: list[DpEvent], delta: float, adjacency: Adjacency
) -> None:
    assert_agrees(events, delta, adjacency)


PRV_WARNS = pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha:UserWarning")
"""PRV asks RDP how wide its grid must be, and RDP grumbles about its orders."""


def assert_agrees_with_prv(events: list[DpEvent], delta: float) -> None:
    oracle = PRVAccountant()
    oracle.history = [(event.noise_multiplier, event.sample_rate, event.steps) for event in events]
    # PRV's value is an upper bound at most ``eps_error`` above the truth on either side.
    assert epsilon(events, delta) == pytest.approx(
        oracle.get_epsilon(delta, eps_error=0.01), abs=0.021, rel=1e-3
    )


PRV_SCHEDULES = st.lists(
    st.builds(
        DpEvent,
        sample_rate=st.sampled_from([0.01, 0.05, 0.2]),
        noise_multiplier=st.floats(0.8, 4).map(lambda noise: round(noise, 2)),
        steps=st.integers(1, 200),
    ),
    min_size=1,
    max_size=2,
)


@PRV_WARNS
@FEW
@given(PRV_SCHEDULES, st.sampled_from([1e-6, 1e-5]))
def test_a_sample_of_schedules_costs_what_opacus_prv_says(events: list[DpEvent], delta: float) -> None:
    assert_agrees_with_prv(events, delta)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@PRV_WARNS
@MANY
@given(PRV_SCHEDULES, st.sampled_from([1e-6, 1e-5]))
def test_many_schedules_cost_what_opacus_prv_says(events: list[DpEvent], delta: float) -> None:
    assert_agrees_with_prv(events, delta)


@pytest.mark.slow
@MANY
@given(SCHEDULES, EVENTS, DELTAS, st.sampled_from(["add_remove", "replace_one"]))
def test_one_more_event_never_makes_a_schedule_cheaper(
    events: list[DpEvent], more: DpEvent, delta: float, adjacency: Adjacency
) -> None:
    assert epsilon(events, delta, adjacency) <= epsilon([*events, more], delta, adjacency) * (1 + 1e-9)
    assert epsilon_rdp(events, delta, adjacency) <= epsilon_rdp([*events, more], delta, adjacency)
