"""Two levels add up to the flat sum, and a region's own sum is in nobody's hands."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import Unprocessable
from privacy.ids import Digest, PartyId, SiloId
from privacy.plan import RoundPlan, TrainingTerms, VectorTerms
from privacy.secagg.additive import combine, ring_to_bytes
from sealsum.cli import cli
from sealsum.simulator.plan import RoundTerms, simulated_plan
from sealsum.simulator.regions import Regions
from sealsum.simulator.sums import plain_ring_sum, shares_of_servers
from silo_agent.models.layouts import model_terms
from silo_agent.update import GridUpdate
from tests.algorithms_world import SILOS as FOUR
from tests.algorithms_world import federation, terms

SILOS = tuple(SiloId(PartyId(name)) for name in ("a", "b", "c", "d", "e"))
TRAINING = TrainingTerms(algorithm="fedavg", local_steps=1, learning_rate=1.0, server_learning_rate=1.0)
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=20)
NORTH_SOUTH = Regions(dict(zip(SILOS, ("north", "north", "south", "south", "south"), strict=True)), least=2)


def plan_of(servers: int = 2) -> RoundPlan:
    shared = RoundTerms(model_terms("logistic", 6), TRAINING, None, VECTOR)
    return simulated_plan(shared, SILOS, Digest("22" * 32), share_servers=servers)


def grid(*steps: float) -> GridUpdate:
    return GridUpdate(np.array(steps, dtype=np.float64))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=7, max_size=7), min_size=5, max_size=5),
    st.integers(2, 4),
)
def test_regions_open_the_very_sum_that_one_level_opens(steps: list[list[int]], servers: int) -> None:
    plan = plan_of(servers)
    updates = {silo: grid(*one) for silo, one in zip(SILOS, steps, strict=True)}
    np.testing.assert_array_equal(NORTH_SOUTH.ring_sum(plan, updates, {}), plain_ring_sum(plan, updates))


def test_what_a_region_passes_up_is_noise_without_every_servers_share() -> None:
    plan = plan_of(3)
    updates = {silo: grid(*[5.0] * 7) for silo in SILOS[:2]}
    shares = shares_of_servers(plan, updates)
    plain = plain_ring_sum(plan, updates)
    for left_out in range(3):
        some = [ring_to_bytes(share) for place, share in enumerate(shares) if place != left_out]
        assert not np.any(combine(some, plan.vector_length) == plain)
    whole = combine([ring_to_bytes(share) for share in shares], plan.vector_length)
    np.testing.assert_array_equal(whole, plain)


def test_a_region_below_its_minimum_passes_nothing_up() -> None:
    strict = replace(NORTH_SOUTH, least=3)
    assert strict.fit(SILOS) == set(SILOS[2:])
    assert strict.fit(SILOS[:4]) == frozenset()
    updates = {silo: grid(*[1.0] * 7) for silo in SILOS}
    with pytest.raises(Unprocessable, match="expected 3 silos or more in each, got fewer in north"):
        strict.ring_sum(plan_of(), updates, {})
    with pytest.raises(Unprocessable, match="one silo is no sum"):
        replace(NORTH_SOUTH, least=1)
    with pytest.raises(Unprocessable, match="expected one for each silo, got none for stranger"):
        strict.fit([SiloId(PartyId("stranger"))])


def test_the_silos_of_a_small_region_have_dropped_out_of_the_round() -> None:
    regions = Regions(dict(zip(FOUR, ("north", "south", "south", "south"), strict=True)), least=2)
    world = federation(terms())
    begin = world.at(np.zeros(5, dtype=np.float32))
    grouped = replace(world, add=regions.ring_sum, passes_up=regions.fit).after_round(begin)
    flat = world.after_round(begin, dropped=(FOUR[0],))
    # Rounded to the grid at random, each time anew.
    np.testing.assert_allclose(grouped.model, flat.model, atol=4 * 2.0**-24)


def test_a_round_in_which_every_region_is_too_small_opens_nothing() -> None:
    regions = Regions(dict(zip(FOUR, "nsew", strict=True)), least=2)
    world = replace(federation(terms()), add=regions.ring_sum, passes_up=regions.fit)
    with pytest.raises(Unprocessable, match="expected 2 or more, got 0"):
        world.after_round(world.at(np.zeros(5, dtype=np.float32)))


def test_the_command_trains_in_regions_and_names_what_is_wrong_with_them() -> None:
    base = ["simulate", "--hospitals", "--rounds", "1", "--json"]
    west = "west=cleveland,va-long-beach"

    def run(*regions: str) -> tuple[int, str]:
        given = [word for region in regions for word in ("--region", region)]
        result = CliRunner().invoke(cli, [*base, *given])
        return result.exit_code, result.output

    code, output = run(west, "east=hungary,switzerland")
    assert code == 0, output
    assert json.loads(output)["silos"] == 4
    assert json.loads(output)["masked"]
    code, output = run(west)
    assert code != 0
    assert "got none for hungary, switzerland" in output
    code, output = run(west, "east=hungary,switzerland,nowhere")
    assert code != 0
    assert "each once, got east=hungary,switzerland,nowhere" in output
