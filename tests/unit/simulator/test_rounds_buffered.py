"""A buffer waits for nobody, holds one update of each silo, and weighs old ones down."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privacy.errors import Unprocessable
from sealsum.cli import cli
from sealsum.simulator.buffered import Buffer, Buffered, Running, weight_of_staleness
from tests.algorithms_world import RATE, SILOS, STEPS, descended, federation, records_of, terms

ZERO = np.zeros(5, dtype=np.float32)
ONE, TWO, THREE, FOUR = SILOS


def buffered(size: int, rounds: int = 20, staleness_max: int = 10, **pace: float) -> Buffered:
    by_name = {silo: pace[silo] for silo in SILOS if silo in pace}
    return Buffered(federation(terms(), rounds), Buffer(size, by_name, staleness_max))


def sums(world: Buffered, count: int) -> list[Running]:
    running, after = world.at(ZERO), []
    for _ in range(count):
        running = world.after_sum(running)
        after.append(running)
    return after


def test_a_buffer_of_equally_fast_silos_is_a_round() -> None:
    plain = federation(terms(), 3)
    standing = plain.at(ZERO)
    for running in sums(buffered(4), 3):
        standing = plain.after_round(standing)
        np.testing.assert_allclose(running.standing.model, standing.model, atol=1e-5)
        assert running.in_sum == dict.fromkeys(SILOS, 0)
    assert running.now == 3.0


def test_an_old_update_is_of_the_model_its_silo_began_from_and_weighs_less() -> None:
    first, second = sums(buffered(3, d=1.5), 2)
    assert first.in_sum == {ONE: 0, TWO: 0, THREE: 0}
    assert second.in_sum == {FOUR: 1, ONE: 0, TWO: 0}
    model = first.standing.model.astype(np.float64)
    steps = [descended(model, records_of(one), STEPS, RATE) - model for one in (0, 1)]
    steps.append(descended(np.zeros(5), records_of(3), STEPS, RATE))
    weights = np.array([1.0, 1.0, 2.0**-0.5])
    mean = (weights[:, None] * np.array(steps)).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(second.standing.model, model + mean, atol=1e-5)
    assert weight_of_staleness(3) == 0.5


def test_no_sum_waits_for_a_slow_silo_and_every_sum_is_of_different_silos() -> None:
    after = sums(buffered(3, d=4.0), 12)
    assert all(len(one.in_sum) == 3 for one in after)
    # Three fast silos open a sum a unit; while the slow one is in, one of them has its seat in the next.
    assert after[-1].now < 12 * 4.0 / 2
    assert any(FOUR in one.in_sum and one.in_sum[FOUR] >= 3 for one in after)


def test_an_update_that_is_too_old_is_not_delivered() -> None:
    after = sums(buffered(2, staleness_max=1, d=9.5), 20)
    assert all(staleness <= 1 for one in after for staleness in one.in_sum.values())
    assert not any(FOUR in one.in_sum for one in after)


def test_under_dp_and_with_what_silos_remember_a_buffer_is_refused() -> None:
    for training, said in (
        (terms("mifa", server={"silos": 4}), "nothing that silos remember"),
        (terms(local={"control": "zero"}), "nothing that silos remember"),
    ):
        with pytest.raises(Unprocessable, match=said):
            Buffered(federation(training), Buffer(3, {}))
    with pytest.raises(Unprocessable, match="expected 2 to 4 updates, got 5"):
        buffered(5)
    with pytest.raises(Unprocessable, match="times above 0"):
        buffered(3, a=0.0)


def test_the_command_says_how_old_updates_were() -> None:
    def run(*options: str) -> tuple[int, Any]:
        base = ("simulate", "--hospitals", "--rounds", "4", "--without-masks", "--json")
        result = CliRunner().invoke(cli, [*base, *options])
        return result.exit_code, json.loads(result.output) if result.exit_code == 0 else result.output

    code, report = run("--buffer", "3", "--pace", "hungary=1.5")
    assert code == 0, report
    assert report["staleness"] > 0
    code, said = run("--pace", "hungary=3")
    assert code == 78
    assert "--pace: expected it with --buffer" in said
    code, said = run("--buffer", "3", "--pace", "hungary=soon")
    assert code == 78
    assert "got hungary=soon" in said
