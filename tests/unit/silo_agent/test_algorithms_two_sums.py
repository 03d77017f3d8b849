"""SCAFFOLD's second sum: equal to the form with one where that is exact, and right where it is not."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import SiloId
from privacy.plan import TrainingTerms
from privacy.secagg.vectors import VectorName
from privacy.wire.messages import RoundResult
from silo_agent.algorithms.catalogue import settle
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.remembered import Remembered
from tests.algorithms_world import (
    MODEL,
    RATE,
    SILOS,
    STEPS,
    Reals,
    federation,
    gradient,
    records_of,
    run,
    task,
    terms,
)
from tests.federation import Federation
from tests.unit.sealsum.test_algorithms_catalogue import DP, job, signed

RECORDS = [records_of(number) for number in range(4)]
ZERO = np.zeros(MODEL.parameters)


def _terms(sums: int, control: str = "zero", **changes: Any) -> TrainingTerms:
    return terms(local={"control": control, "control_sums": sums}, **changes)


@pytest.mark.parametrize("control", ["zero", "warm"])
@pytest.mark.parametrize("changes", [{}, {"weights": "examples", "weight_cap": 50}])
def test_both_forms_are_equal_where_both_are_exact(control: str, changes: dict[str, Any]) -> None:
    dropped: dict[int, Collection[SiloId]] = {3: [SILOS[1]]}
    one, two = (run(federation(_terms(sums, control, **changes), rounds=5), dropped) for sums in (1, 2))
    for single, double in zip(one, two, strict=True):
        np.testing.assert_allclose(double.model, single.model, atol=2e-5)
    for silo in SILOS:
        # The last round's increment is in both: a simulation settles every round.
        held = (standings[-1].memories[silo].arrays["control"] for standings in (one, two))
        np.testing.assert_allclose(next(held), next(held), atol=5e-5)


def test_with_momentum_two_sums_are_scaffold_of_two_sums() -> None:
    """Karimireddy et al. 2020, Algorithm 1, option II, with both sums, and FedAvgM's step."""
    training = _terms(2, server={"momentum": 0.6}, server_learning_rate=0.5)
    x, momentum, c, controls = ZERO, ZERO, ZERO, [ZERO] * 4
    for standing in run(federation(training, rounds=6)):
        ends, fresh = [], []
        for records, control in zip(RECORDS, controls, strict=True):
            y: Reals = x
            for _ in range(STEPS):
                y = y - RATE * (gradient(y, records) - control + c)
            ends.append(y)
            fresh.append(control - c + (x - y) / (STEPS * RATE))
        momentum = 0.6 * momentum + np.mean(ends, axis=0) - x
        x = x + 0.5 * momentum
        c = c + np.mean([new - old for new, old in zip(fresh, controls, strict=True)], axis=0)
        controls = fresh
        np.testing.assert_allclose(standing.model, x, atol=3e-5)
        for silo, own in zip(SILOS, controls, strict=True):
            np.testing.assert_allclose(standing.memories[silo].arrays["control"], c - own, atol=3e-5)


def test_corrections_of_two_sums_add_up_to_zero_under_the_models_weights_whoever_drops_out() -> None:
    training = _terms(2, weights="examples", weight_cap=50, server={"optimizer": "adam"})
    dropped: dict[int, Collection[SiloId]] = {2: [SILOS[1]], 3: [SILOS[0], SILOS[3]]}
    weights = [min(len(records), 50) / 50 for records in RECORDS]
    standings = run(federation(training, rounds=5), dropped)
    for standing in standings:
        held = [standing.memories[silo].arrays["control"] for silo in SILOS]
        np.testing.assert_allclose(np.dot(weights, held), 0, atol=1e-5)
        assert np.abs(held).max() > 1e-3
    kept = [standing.memories[SILOS[1]].arrays["control"] for standing in standings[:3]]
    assert np.array_equal(kept[0], kept[1]), "a silo that dropped out keeps its own"
    assert not np.array_equal(kept[1], kept[2])


def test_what_a_silo_staged_is_completed_by_the_published_result_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    world = Federation()
    spec = world.job_spec(rounds=9)
    plan = world.plan(spec, 1, model="a" * 64)
    training = _terms(2)
    plan = plan.model_copy(update={"training": training})
    update = fedavg(task(training, further=federation(training).terms.further))
    pace = update.further[VectorName("control")].values  # type: ignore[union-attr]
    mean = tuple(float(value) for value in pace / 2)
    result = RoundResult(
        outcome="opened",
        reason="",
        survivors=plan.silos,
        model_in=plan.model,
        model_out="b" * 64,
        openings=1,
        job_state="running",
        further={VectorName("control"): mean},
    )
    Remembered(tmp_path, tmp_path / "scratch").stage(plan, update)
    again = Remembered(tmp_path, tmp_path / "scratch")
    again.conclude(plan, result, plan.silos[0], _NothingToFetch())  # type: ignore[arg-type]
    memory = Remembered(tmp_path, tmp_path / "scratch").memory(plan)
    np.testing.assert_allclose(memory.arrays["control"], pace - np.array(mean), atol=1e-6)


class _NothingToFetch:
    """A delivery whose next model is not asked for."""

    def fetch_ahead(self, *asked: object) -> None:
        """Nothing comes."""

    def fetched(self, model: object) -> None:
        """Nothing has come."""


def test_a_result_without_the_second_sum_is_not_taken_for_zero() -> None:
    training = _terms(2)
    update = fedavg(task(training, further=federation(training).terms.further))
    with pytest.raises(SealsumError, match=r"result\.further: expected 5 numbers of control"):
        settle(training, update.keep, np.zeros(0, dtype=np.float32), {})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"training": {"algorithm": "scaffold", "server_momentum": 0.9}},
            "with control_sums: 2 it is summed",
        ),
        ({"training": {"algorithm": "fedavg", "control_sums": 2}}, r"expected 1 without local\.control"),
        (
            {
                "training": {
                    "algorithm": "scaffold",
                    "control_sums": 2,
                    "local_steps": 2,
                    "learning_rate": 0.1,
                },
                "dp": DP,
            },
            "expected 1 with dp",
        ),
        (
            {"training": {"algorithm": "scaffold", "control_sums": 2}, "scheme": "threshold_bfv"},
            "expected none with threshold_bfv",
        ),
        (
            {
                "training": {"algorithm": "scaffold", "control_sums": 2},
                "model": {"adapter": "mlp", "hidden": ["400"]},
            },
            "a model of at most 1024 parameters, whose second sum is published, got 1201",
        ),
    ],
)
def test_two_sums_are_refused_where_they_cannot_be(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        signed(job(**asked))


def test_two_sums_take_every_server_step() -> None:
    spec = signed(job({"algorithm": "scaffold", "control_sums": 2, "server_momentum": 0.9}))
    assert [(vector.name, vector.coordinates, vector.opens_to) for vector in spec.further] == [
        ("control", spec.model.parameters, "mean")
    ]
