"""A federation under schedules of faults by a mock clock: no invariant breaks; what broke once is kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.simulation import PARTIES, Fault, as_json, from_json, play, schedule, shrunk

KEPT = sorted((Path(__file__).parent / "reproductions").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_schedule_of_faults_breaks_no_invariant(seed: int) -> None:
    play(schedule(seed))


@pytest.mark.slow
def test_answers_that_are_lost_for_a_while_open_nothing_twice() -> None:
    """Case 36: every request arrives, and for a while no answer comes back."""
    play([Fault("answer_lost", party, at) for party in PARTIES for at in range(3, 12)], rounds=1)


@pytest.mark.slow
def test_a_slow_and_lossy_network_only_costs_time() -> None:
    """Case 37: two seconds each way, one call in twenty lost."""
    draw = random.Random(37)
    lost = [Fault("answer_lost", party, at) for party in PARTIES for at in range(60) if draw.random() < 0.05]
    assert len(lost) > 3
    play(lost, rounds=1, every_call_s=2.0)


@pytest.mark.slow
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_schedule_that_once_broke_an_invariant_breaks_none(path: Path) -> None:
    play(from_json(path.read_text("utf-8")))


def test_a_failing_schedule_is_shrunk_to_what_fails() -> None:
    needed = {Fault("twice", "aggregator", 7), Fault("dies_after", "server-0", 2)}
    whole = (*schedule(1)[:5], *needed, *schedule(2)[:6])

    def fails(faults: Sequence[Fault]) -> bool:
        return needed <= set(faults)

    assert set(shrunk(whole, fails)) == needed
    assert from_json(as_json(1, whole)) == whole
