"""Whatever commit a server dies at, the same round goes on: I2, I4, I5, I6 and I7 hold for every schedule."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.crash_world import CrashWorld, FailPoint, plain_model
from tests.federation import Federation

ONE = Federation()
"""Its keys are made once; every world has disks of its own."""


async def survives(points: list[FailPoint], lossy: random.Random | None = None, rounds: int = 2) -> None:
    """Play a job through these crashes, and hold what came of it against the invariants."""
    with tempfile.TemporaryDirectory() as root:
        world = CrashWorld(Path(root), ONE, lossy=lossy)
        spec = ONE.job_spec(parameters=5, rounds=rounds)
        view = await world.play(spec, points, silo_4={"refuses": True})
    contexts = [entry["context"] for entry in view["history"]]
    # I7: no round was lost, and none began twice.
    assert (view["state"], view["round"]) == ("finished", rounds)
    assert [entry["round"] for entry in view["history"]] == list(range(1, rounds + 1))
    # I2, I4: each was opened once, for the three that sent; each update was in exactly one.
    assert [entry["outcome"] for entry in view["history"]] == ["opened"] * rounds
    assert view["openings"] == rounds
    assert all(entry["survivors"] == ["silo-1", "silo-2", "silo-3"] for entry in view["history"])
    sent = [world.silos[f"silo-{number}"].sent for number in (1, 2, 3)]
    assert all([update.envelope.context for update in updates] == contexts for updates in sent)
    # I5: each log goes on where the last process left it, and says each thing once.
    for before, after in zip(world.shown, world.shown[1:], strict=False):
        assert after[: len(before)] == before
    for kind in ("round_offered", "cohort_cleared", "sum_opened", "model_published", "silo_refused"):
        assert world.kinds().count(kind) == rounds, kind
    # I6: the model is what the plain sums give, to the last bit.
    assert view["bytes"] == plain_model(
        spec, [[updates[number].encoded for updates in sent] for number in range(rounds)]
    )


def test_a_job_without_a_crash_is_the_model_of_all_others() -> None:
    asyncio.run(survives([]))


CRASH = st.tuples(st.sampled_from(["aggregator", "server-0", "server-1"]), st.integers(1, 14), st.booleans())


@settings(
    max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(crashes=st.lists(CRASH, min_size=1, max_size=3), seed=st.integers(0, 2**32))
def test_random_crashes_on_a_network_that_loses_calls_break_no_invariant(
    crashes: list[tuple[str, int, bool]], seed: int
) -> None:
    asyncio.run(_random(crashes, seed))


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_the_aggregator_may_die_at_every_single_commit_of_a_round(after: bool) -> None:
    async def every() -> int:
        for number in range(1, 30):
            point = FailPoint("aggregator", number, after)
            await survives([point], rounds=1)
            if not point.dead.is_set():
                return number - 1
        raise AssertionError("expected a round to have fewer commits")

    assert asyncio.run(every()) >= 5


async def _random(crashes: list[tuple[str, int, bool]], seed: int) -> None:
    points: list[Any] = [FailPoint(party, at, after) for party, at, after in crashes]
    await survives(points, random.Random(seed))
