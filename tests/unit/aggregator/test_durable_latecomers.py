"""A silo that is often late is waited for a while longer; one that is gone is not, and nobody for good."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aggregator.latecomers import GRACES_MAX, Latecomers
from aggregator.presence import Bell, Presence
from privacy.ids import JobId, PartyId, SiloId
from tests.aggregator_world import Silo, World, on_loop, submit

JOB = JobId("heart")
ONE, TWO, THREE, SLOW = (SiloId(PartyId(f"silo-{number}")) for number in (1, 2, 3, 4))
ALL = (ONE, TWO, THREE, SLOW)


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def after_rounds_without_slow(rounds: int, *, calls: bool) -> tuple[Latecomers, Presence, Clock]:
    clock = Clock()
    presence = Presence(1.0, Bell(), clock)
    late = Latecomers(presence, grace_s=5.0)
    for _ in range(rounds):
        clock.now += 10
        late.invited(JOB, ALL, (ONE, TWO, THREE))
        clock.now += 2
        if calls:
            with presence.call(SLOW):
                pass
        clock.now += 8
    return late, presence, clock


def test_each_round_in_a_row_without_a_silo_earns_it_one_more_grace_up_to_a_bound() -> None:
    for rounds in (1, 2, 3, 30):
        late, _, _ = after_rounds_without_slow(rounds, calls=True)
        assert late.owed(JOB, ALL) == {SLOW}
        assert late.extra_s(JOB, {SLOW}) == 5.0 * min(rounds, GRACES_MAX)


def test_a_silo_of_whom_nothing_is_heard_holds_nobody_up() -> None:
    late, _, _ = after_rounds_without_slow(3, calls=False)
    assert late.owed(JOB, ALL) == frozenset()
    assert late.extra_s(JOB, ()) == 0.0


def test_once_it_is_in_a_round_it_is_owed_nothing_more() -> None:
    late, _, _ = after_rounds_without_slow(3, calls=True)
    late.invited(JOB, ALL, ALL)
    assert late.owed(JOB, ALL) == frozenset()


def test_a_silo_that_is_here_is_not_waited_for() -> None:
    late, presence, _ = after_rounds_without_slow(2, calls=True)
    with presence.call(SLOW):
        assert late.owed(JOB, ALL) == frozenset()


@on_loop
async def test_a_silo_that_comes_after_every_grace_period_is_in_the_next_round_all_the_same(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, grace_s=2.0)
    spec = world.federation.job_spec(rounds=3)
    # Gone within a moment, so that only who waits is here.
    aggregator = world.build_aggregator(presence_s=0.05)
    async with world.running(aggregator):
        await submit(world, aggregator, spec)
        runs = [asyncio.create_task(Silo(world, aggregator, name).run()) for name in (ONE, TWO, THREE)]
        while aggregator.state.current is None:
            await asyncio.sleep(0.01)
        # It was not there for the first round; it is heard of in the middle, and comes after the grace.
        assert SLOW not in aggregator.state.current.round.plan.silos
        with aggregator.state.presence.call(SLOW):
            pass
        while aggregator.state.current is not None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(2.2)
        runs.append(asyncio.create_task(Silo(world, aggregator, SLOW).run()))
        await asyncio.wait_for(asyncio.gather(*runs), 60)
        with aggregator.state.store.read() as view:
            manifests = view.messages_of_job(spec.job, "manifest")
    assert [SLOW in by_silo for by_silo in manifests.values()] == [False, True, True]
