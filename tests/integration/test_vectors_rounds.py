"""Rounds with two and three vectors, whole: each opens to its own sum, by its own weight and scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privacy.vector_terms import FurtherVector
from sealsum.job_metrics import sentence, training_curve
from sealsum.job_view import JobView
from tests.aggregator_world import on_loop
from tests.federation import Federation
from tests.pairwise_world import oracle_model
from tests.vectors_world import (
    CONTROL,
    MEASURED,
    NO_DP,
    STATISTICS,
    MeasuringSilo,
    SharingSilo,
    VectorsWorld,
    one_server_world,
    vector_of,
    with_metrics,
    without_dp,
)

SOME = pytest.mark.parametrize(
    "further", [(STATISTICS,), (CONTROL, STATISTICS)], ids=["two vectors", "three vectors"]
)
VALUES = np.array([0.25, 0.5, 0.75, 1.0])
"""The first coordinate of each silo's update; its further vector number n holds this / (2 + n) throughout."""


def _sharing(world: VectorsWorld) -> list[SharingSilo]:
    """One silo for each of the values."""
    names = world.federation.charter.silos
    return [SharingSilo(world, name, float(value)) for name, value in zip(names, VALUES, strict=True)]


def _expected(further: tuple[FurtherVector, ...]) -> dict[str, np.ndarray[Any, Any]]:
    held = {vector.name: VALUES.astype(np.float32) / (2 + n) for n, vector in enumerate(further)}
    return {
        vector.name: np.full(
            vector.coordinates,
            held[vector.name].mean() if vector.opens_to == "mean" else held[vector.name].sum(),
        )
        for vector in further
    }


def _assert_opened(shown: dict[str, Any], further: tuple[FurtherVector, ...]) -> None:
    assert list(shown) == sorted(vector.name for vector in further)
    for vector in further:
        values = np.array(shown[vector.name], dtype=float)
        # Four silos' stochastic roundings, each by less than a step.
        step = 4 * 2.0**-vector.terms.scale_bits
        np.testing.assert_allclose(values, _expected(further)[vector.name], atol=step)


@SOME
@pytest.mark.parametrize("scheme", ["pairwise", "bfv", "ckks"])
@on_loop
async def test_each_vector_opens_to_its_own_sum_with_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, further: tuple[FurtherVector, ...]
) -> None:
    if scheme != "pairwise":  # masks begin at chunks of 2^18 elements; opened sums may be cut anywhere
        monkeypatch.setattr("privacy.secagg.parts.PART_ELEMENTS", 2)
    world = one_server_world(tmp_path, scheme)
    spec = world.spec(**NO_DP, scheme=scheme, vector=vector_of(scheme), further=further)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        _assert_opened(view["history"][0]["further"], further)
        for silo in silos:
            _assert_opened(silo.results[0].further, further)


@SOME
@on_loop
async def test_each_vector_opens_to_its_own_sum_with_share_servers(
    tmp_path: Path, further: tuple[FurtherVector, ...]
) -> None:
    world = VectorsWorld(tmp_path, Federation(policy_text=without_dp("hospitals")))
    silos = _sharing(world)
    outcome = await world.run_job(world.spec(**NO_DP, further=further), silos)
    assert [silo.faults for silo in silos] == [[], [], [], []]
    assert outcome.view["state"] == "finished"
    np.testing.assert_allclose(outcome.model, VALUES.mean(), atol=4 * 2.0**-20)
    _assert_opened(outcome.view["history"][0]["further"], further)


@on_loop
async def test_a_round_without_further_vectors_says_nothing_of_them(tmp_path: Path) -> None:
    world = VectorsWorld(tmp_path)
    silos = _sharing(world)
    outcome = await world.run_job(world.spec(), silos)
    assert outcome.view["history"][0]["further"] == {}
    assert b"further" not in silos[0].world.federation.sign_job(world.spec()).body.encode()
    assert "further" not in silos[0].results[0].model_dump(mode="json")


@on_loop
async def test_a_job_that_asks_for_metrics_draws_a_curve(tmp_path: Path) -> None:
    world = VectorsWorld(tmp_path, Federation(policy_text=with_metrics("hospitals")))
    spec = world.spec(parameters=3, **{**MEASURED, "rounds": 3})
    silos = [MeasuringSilo(world, name, 0.0) for name in world.federation.charter.silos]
    outcome = await world.run_job(spec, silos)
    assert (outcome.view["state"], [silo.faults for silo in silos]) == ("finished", [[], [], [], []])
    curve = training_curve(spec, JobView.model_validate(outcome.view).history)
    assert [point.round for point in curve] == [1, 2, 3]
    # About 120 patients a sample; the counts' noise deviates by 2 · √3 · √4 = 7.
    assert all(set(point.metrics) in ({"accuracy", "loss"}, set()) for point in curve)
    assert any(point.metrics for point in curve)
    assert all(sentence(point) for point in curve)
    for silo in silos:
        for result in silo.results:
            (values,) = result.further.values()
            assert all(value * 2.0**14 == round(value * 2.0**14) for value in values), "on the grid"
