"""A cap on the batch is charged, for whatever number of units there is up to the public bound."""

from __future__ import annotations

import pytest
from dp_accounting.dp_event import SelfComposedDpEvent, TruncatedSubsampledGaussianDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from privacy.dp.accountant import epsilon, epsilon_rdp, price
from privacy.dp.batch_cap import cap_bites
from privacy.dp.events import Adjacency, CappedEvent, DpEvent

RELATIONS = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}


def capped(cap: int, units: int, steps: int = 100, rate: float = 0.1, noise: float = 1.0) -> CappedEvent:
    return CappedEvent(
        sample_rate=rate, noise_multiplier=noise, steps=steps, batch_cap=cap, units_at_most=units
    )


@given(st.integers(2, 3000), st.floats(0.001, 0.999), st.integers(1, 3000))
def test_the_cap_bites_at_least_as_often_as_the_binomial_says(units: int, rate: float, cap: int) -> None:
    exact = binom.sf(cap - 1, units - 1, rate)
    bound = cap_bites(capped(cap, units, rate=rate))
    assert exact <= bound * (1 + 1e-9) <= 1 + 1e-9
    deviation = (units * rate * (1 - rate)) ** 0.5
    if exact > 1e-200 and cap > units * rate + 4 * deviation:
        assert bound <= 1.5 * exact


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_cap_costs_no_less_than_the_library_says_for_any_number_of_units(adjacency: Adjacency) -> None:
    ours = epsilon([capped(35, 200)], 1e-5, adjacency)
    for units in (36, 150, 200):
        oracle = PLDAccountant(RELATIONS[adjacency], value_discretization_interval=1e-3)
        oracle.compose(SelfComposedDpEvent(TruncatedSubsampledGaussianDpEvent(units, 0.1, 35, 1.0), 100))
        assert ours >= oracle.get_epsilon(1e-5) * (1 - 1e-9)
    assert ours == pytest.approx(oracle.get_epsilon(1e-5), rel=0.1)


def test_a_cap_is_never_cheaper_than_none_and_a_roomy_one_costs_nothing() -> None:
    plain = epsilon([DpEvent(sample_rate=0.1, noise_multiplier=1.0, steps=100)], 1e-5)
    costs = [epsilon([capped(cap, 200)], 1e-5) for cap in (5, 25, 30, 40, 60)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(plain, rel=1e-6)
    assert min(costs) >= plain * (1 - 1e-9)
    assert epsilon([capped(200, 200)], 1e-5) == pytest.approx(plain, rel=1e-12)
    assert epsilon([capped(30, 400)], 1e-5) > costs[2]


def test_a_capped_batch_is_checked_by_rdp_from_above_and_is_no_full_batch() -> None:
    for cap in (5, 25, 40):
        cost = price([capped(cap, 200)], 1e-5, "add_remove")
        assert cost.epsilon <= cost.epsilon_rdp
    assert epsilon_rdp([capped(30, 200)], 1e-5) > epsilon_rdp([capped(60, 200)], 1e-5)
    assert price([capped(30, 200, rate=1.0)], 1e-5, "add_remove").mu is None
