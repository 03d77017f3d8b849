"""The simulator's sums: the real path opens what the plain one adds up, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import Unprocessable
from privacy.ids import Digest, PartyId, SiloId
from privacy.plan import RoundPlan, TrainingTerms, VectorTerms
from privacy.secagg.additive import Ring
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.vectors import WeightImplausible
from sealsum.simulator.plan import RoundTerms, simulated_plan
from sealsum.simulator.sums import open_sum, plain_ring_sum, secure_ring_sum, secure_sum
from silo_agent.models.layouts import model_terms
from silo_agent.update import FloatUpdate, GridUpdate, Update

SILOS = tuple(SiloId(PartyId(name)) for name in ("a", "b", "c"))
TRAINING = TrainingTerms(algorithm="fedavg", local_steps=1, learning_rate=1.0, server_learning_rate=1.0)
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=20)
STEP = 2.0**-20


def plan_of(inputs: int = 6, share_servers: int = 2) -> RoundPlan:
    terms = RoundTerms(model_terms("logistic", inputs), TRAINING, None, VECTOR)
    return simulated_plan(terms, SILOS, Digest("22" * 32), share_servers=share_servers)


def grid(*steps: float) -> GridUpdate:
    return GridUpdate(np.array(steps, dtype=np.float64))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(-(1 << 22), 1 << 22), min_size=7, max_size=7), min_size=2, max_size=3),
    st.integers(2, 4),
)
def test_the_secure_path_opens_exactly_the_ring_sum_of_what_is_on_the_grid(
    steps: list[list[int]], servers: int
) -> None:
    plan = plan_of(share_servers=servers)
    updates: dict[SiloId, Update] = {
        silo: grid(*row) for silo, row in zip(SILOS[: len(steps)], steps, strict=True)
    }
    opened = secure_ring_sum(plan, updates)
    assert np.array_equal(opened, plain_ring_sum(plan, updates))
    assert np.array_equal(secure_sum(plan, updates), np.sum(steps, axis=0) * STEP)


def test_float_updates_differ_from_their_true_sum_by_less_than_a_step_a_silo() -> None:
    plan = plan_of()
    values = np.linspace(-1.0, 1.0, 21).reshape(3, 7).astype(np.float32)
    updates: dict[SiloId, Update] = {silo: FloatUpdate(row) for silo, row in zip(SILOS, values, strict=True)}
    weights = {SILOS[0]: 0.5, SILOS[1]: 0.25}
    expected = (0.5 * values[0] + 0.25 * values[1] + values[2]).astype(np.float64)
    assert np.all(np.abs(secure_sum(plan, updates, weights) - expected) < 3 * STEP)
    opened = open_sum(plan, updates, weights, secure_ring_sum)
    assert np.allclose(opened.total, expected, atol=3 * STEP)
    assert opened.weight == 1.75


def test_a_vector_of_several_parts_is_summed_whole() -> None:
    plan = plan_of(inputs=2_200_000)
    updates: dict[SiloId, Update] = {
        silo: GridUpdate(np.full(plan.parameters, number, dtype=np.float64))
        for number, silo in enumerate(SILOS, start=1)
    }
    assert np.array_equal(secure_sum(plan, updates), np.full(plan.parameters, 6 * STEP))


def test_a_sum_whose_masks_did_not_cancel_is_not_opened() -> None:
    plan = plan_of()
    updates: dict[SiloId, Update] = {silo: grid(*range(7)) for silo in SILOS}

    def unmasked(*terms: object) -> Ring:
        return plain_ring_sum(plan, updates) + np.uint32(1 << 30)

    with pytest.raises(WeightImplausible):
        open_sum(plan, updates, {}, unmasked)


@pytest.mark.parametrize("add", [secure_ring_sum, plain_ring_sum])
def test_what_no_round_would_open_is_not_opened_here(add: object) -> None:
    plan = plan_of()
    assert callable(add)
    with pytest.raises(Unprocessable, match="expected 2 or more, got 1"):
        add(plan, {SILOS[0]: grid(*range(7))})
    with pytest.raises(Unprocessable, match="expected silos of the plan, got also z"):
        add(plan, {SILOS[0]: grid(*range(7)), SiloId(PartyId("z")): grid(*range(7))})
    with pytest.raises(UpdateOutOfRange, match="coordinate_bound"):
        add(plan, {silo: grid(*([9.0 / STEP] * 7)) for silo in SILOS})
