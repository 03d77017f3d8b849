"""Packed coordinates add up as they would apart, at the worst too, and whatever could carry is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import VectorTerms
from privacy.secagg.packing import assert_fields_hold, field_bits, largest_step, pack, unpack
from sealsum.job_grid import coarse_vector
from sealsum.job_judgement import planned_upload_bytes
from sealsum.simulator.plan import simulated_plan
from sealsum.simulator.sums import open_sum, plain_ring_sum, secure_ring_sum
from silo_agent.update import FloatUpdate
from tests.algorithms_world import MODEL, SILOS, federation, run, terms
from tests.federation import Federation
from tests.unit.sealsum.test_algorithms_catalogue import FEDERATION, job, signed


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(2, 12), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_packed_sum_is_the_sum(silos: int, bits: int, length: int, seed: int) -> None:
    vector = coarse_vector(bits, 0.5, "additive", silos)
    assert_fields_hold(vector, silos)
    most = largest_step(vector)
    random = np.random.default_rng(seed)
    steps = random.choice([-most, 0, most, *range(-most, most + 1, max(1, most // 3))], (silos, length))
    total = np.zeros(vector.elements(length), dtype=np.uint32)
    for silo in steps:
        total += pack(silo.astype(np.int64).astype(np.uint32), vector)
    survivors = unpack(total, vector, silos).view(np.int32)
    assert np.array_equal(survivors[:length], steps.sum(axis=0))
    assert not survivors[length:].any(), "what fills the last element up is zero"


@pytest.mark.parametrize("sign", [-1, 1])
def test_all_silos_at_their_bound_carry_into_no_other_field(sign: int) -> None:
    vector = coarse_vector(8, 0.5, "additive", 4)
    assert (vector.per_element, field_bits(vector)) == (3, 10)
    one = np.array([sign * largest_step(vector), 0, 0, 0], dtype=np.int64).astype(np.uint32)
    total = 4 * pack(one, vector)
    assert unpack(total, vector, 4).view(np.int32).tolist() == [
        4 * sign * largest_step(vector),
        0,
        0,
        0,
        0,
        0,
    ]


def test_fields_that_a_sum_could_leave_are_refused() -> None:
    vector = coarse_vector(8, 0.5, "additive", 4)
    with pytest.raises(Unprocessable, match=r"vector\.per_element: 8 silos"):
        assert_fields_hold(vector, 8)


@pytest.mark.parametrize("add", [secure_ring_sum, plain_ring_sum])
def test_an_update_comes_out_of_the_sum_within_a_step(add: Any) -> None:
    world = federation(terms(local={"coordinate_clip": 0.5}))
    vector = coarse_vector(8, 0.5, "additive", len(SILOS))
    packed = world.terms.__class__(world.terms.model, world.terms.training, None, vector)
    plan = simulated_plan(packed, SILOS, "a" * 64)
    assert plan.vector_length == 2 + 1, "five coordinates in two elements, and a weight"
    random = np.random.default_rng(0)
    updates = {silo: FloatUpdate(random.uniform(-0.5, 0.5, 5).astype(np.float32)) for silo in SILOS}
    opened = open_sum(plan, updates, {}, add)
    exact = np.sum([update.values for update in updates.values()], axis=0)
    assert opened.weight == len(SILOS)
    assert np.all(np.abs(opened.total - exact) <= len(SILOS) * 2.0**-vector.scale_bits)


def test_a_coordinate_beyond_the_bound_is_brought_within_it_at_the_silo() -> None:
    training = terms(learning_rate=5.0, local={"coordinate_clip": 0.25})
    world = federation(training)
    update = world.update_of(SILOS[3], np.zeros(MODEL.parameters, dtype=np.float32))
    assert isinstance(update, FloatUpdate)
    assert np.abs(update.values).max() == 0.25


def test_training_in_eight_bits_ends_where_training_in_many_does() -> None:
    """Rounding is unbiased, so that errors average out over rounds."""
    training = terms(local={"coordinate_clip": 1.0})
    fine = run(federation(training, rounds=30))[-1].model
    world = federation(training, rounds=30)
    vector = coarse_vector(8, 1.0, "additive", len(SILOS))
    coarse = type(world)(
        world.terms.__class__(MODEL, training, None, vector), world.adapter, world.silos, rounds=30
    )
    assert np.linalg.norm(run(coarse)[-1].model - fine) < 0.1 * np.linalg.norm(fine)


@pytest.mark.parametrize("kind", ["scaffold", "mifa"])
def test_what_silos_remember_is_what_the_sum_had_of_them_however_coarse_the_grid(kind: str) -> None:
    """Else corrections drift together, by the rounding of every round, and nothing ever takes that back."""
    vector = VectorTerms(coordinate_bound=2.0, scale_bits=5)
    if kind == "scaffold":
        training = terms(local={"control": "zero"})
    else:
        training = terms("mifa", server={"silos": len(SILOS)})
    world = federation(training, rounds=12)
    coarse = type(world)(
        world.terms.__class__(MODEL, training, None, vector), world.adapter, world.silos, rounds=12
    )
    last = run(coarse, {3: [SILOS[0]], 7: [SILOS[1], SILOS[2]]})[-1]
    name = "control" if kind == "scaffold" else "last"
    total = np.sum([last.memories[silo].arrays[name] for silo in SILOS], axis=0)
    np.testing.assert_allclose(total, 0 if kind == "scaffold" else last.slots["kept"], atol=1e-5)


# --- in job files ---


def test_a_silo_uploads_a_third_and_the_job_says_so() -> None:
    inputs = {"hidden": [64], "adapter": "mlp"}
    sizes = [
        planned_upload_bytes(signed(job({}, model=inputs, **more)), FEDERATION.charter)
        for more in ({}, {"compression": {"bits": 8}})
    ]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[1] == pytest.approx(sizes[0] / 3, rel=0.05)


def test_int8_takes_a_third_of_the_bytes_and_four_bits_a_fifth() -> None:
    for bits, per_element in ((8, 3), (4, 5)):
        spec = signed(job({}, compression={"bits": bits}))
        assert spec.vector.per_element == per_element
        assert spec.training.local.coordinate_clip == 0.5


@pytest.mark.parametrize("scheme", ["bfv", "ckks", "threshold_bfv", "threshold_ckks"])
def test_where_a_scheme_encrypts_coordinates_are_not_packed(scheme: str) -> None:
    assert signed(job({}, compression={"bits": 8}, scheme=scheme)).vector.per_element == 1
    vector = {"coordinate_bound": "0.5", "scale_bits": 7, "per_element": 3}
    with pytest.raises(ConfigurationError, match=f"expected 1 with {scheme}"):
        signed(job({}, vector=vector, scheme=scheme))


@pytest.mark.parametrize("training", [{"weights": "examples"}, {"algorithm": "mifa"}])
def test_what_needs_fine_steps_is_not_packed(training: dict[str, Any]) -> None:
    vector = {"coordinate_bound": "0.5", "scale_bits": 7, "per_element": 3}
    with pytest.raises(ConfigurationError, match="need steps finer"):
        signed(job(training, vector=vector))


def test_a_grid_and_compression_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="expected it or vector, got both"):
        job({}, compression={"bits": 8}, vector={"coordinate_bound": "1", "scale_bits": 16})


def test_one_coordinate_an_element_is_not_spelled() -> None:
    assert b"per_element" not in canonical_bytes(Federation().job_spec())
    assert b"per_element" in canonical_bytes(VectorTerms(coordinate_bound=1.0, scale_bits=6, per_element=3))
