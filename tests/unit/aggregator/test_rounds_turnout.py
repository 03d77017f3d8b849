"""Who was invited, took part or failed is remembered; whoever fails sits out, and never for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.assembly import Aggregator
from aggregator.job_rows import job_row
from aggregator.latecomers import GRACES_MAX, Latecomers
from aggregator.presence import Bell, Presence
from aggregator.turnout import PAUSE_MAX, Ending, Turnout, endings, pause
from aggregator.turnouts import Turnouts, totals, turnouts_of
from privacy.ids import JobId, PartyId, SiloId
from sealsum.job_view import TurnoutView
from tests.aggregator_world import Silo, World, on_loop, submit
from tests.federation import Federation

JOB = JobId("heart")
SILOS = tuple(SiloId(PartyId(f"silo-{number}")) for number in (1, 2, 3, 4))
ONE, TWO, THREE, FOUR = SILOS


def test_pauses_double_up_to_a_bound_and_the_first_failure_costs_none() -> None:
    assert [pause(strikes) for strikes in range(1, 8)] == [0, 1, 3, 7, 8, 8, 8]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["summed", "refused", "failed", "spared"]), st.booleans()), max_size=40
    )
)
def test_whatever_happens_nobody_sits_out_for_more_than_the_bound_and_counts_add_up(
    rounds: Sequence[tuple[Ending, bool]],
) -> None:
    turnout = Turnout()
    for number, (ending, opened) in enumerate(rounds, 1):
        turnout = turnout.ended(ending, number, opened=opened)
        assert turnout.paused_until <= number + PAUSE_MAX
        if ending == "summed":
            assert (turnout.strikes, turnout.paused_until) == (0, 0)
    assert turnout.invited == len(rounds)
    assert turnout.summed + turnout.refused + turnout.failed <= turnout.invited


def test_decisions_are_no_failures_and_silence_counts_only_where_the_round_was_played() -> None:
    refusals = {ONE: "budget.job", TWO: "silo.failure"}
    for blamed, silent in ((True, "failed"), (False, "spared")):
        said = endings(SILOS, survivors=(), answered=(FOUR,), refusals=refusals, blamed=blamed)
        assert said == {ONE: "refused", TWO: "failed", THREE: silent, FOUR: "spared"}
    assert endings((ONE,), survivors=(ONE,), answered=(), refusals={}, blamed=True) == {ONE: "summed"}


def test_after_a_restart_a_latecomer_is_owed_what_it_was() -> None:
    presence = Presence(1.0, Bell(), lambda: 7.0)
    late = Latecomers(presence, grace_s=5.0)
    late.recall(JOB, {FOUR: 3})
    assert late.owed(JOB, SILOS) == frozenset()  # silent since the restart
    with presence.call(FOUR):
        pass
    assert late.extra_s(JOB, {FOUR}) == 15.0
    late.invited(JOB, SILOS, (ONE, TWO, THREE))
    late.recall(JOB, {})  # this process knows better by now
    assert late.extra_s(JOB, {FOUR}) == 5.0 * GRACES_MAX


def test_the_command_says_it_in_a_sentence() -> None:
    view = TurnoutView(invited=6, summed=4, refused=0, failed=2, left_out=1, paused_until=7)
    assert view.sentence(7) == (
        "in the sum of 4 of 6 rounds that invited it, 2 failed, 1 left out; sits out up to round 7"
    )
    assert "sits out" not in view.sentence(8)


def turnouts(aggregator: Aggregator) -> dict[SiloId, Turnout]:
    """As the database has them."""
    with aggregator.state.store.read() as view:
        return turnouts_of(view, JOB)


async def until_failed(aggregator: Aggregator, silo: SiloId, times: int) -> None:
    """Wait for the end of so many rounds in which it is silent."""
    async with asyncio.timeout(20):
        while turnouts(aggregator).get(silo, Turnout()).failed < times:
            await asyncio.sleep(0.02)


async def gone_on(runs: Sequence[asyncio.Task[None]]) -> None:
    """Let the silos play the job to its end."""
    try:
        await asyncio.wait_for(asyncio.gather(*runs), 40)
    finally:
        for run in runs:
            run.cancel()


@on_loop
async def test_a_silo_that_fails_sits_out_and_comes_back_and_a_restart_knows_it(tmp_path: Path) -> None:
    world = World(tmp_path, grace_s=0.2)
    spec = world.federation.job_spec(rounds=5, round_deadline_s=1)
    aggregator = world.build_aggregator(presence_s=60)
    async with world.running(aggregator):
        await submit(world, aggregator, spec)
        silos = [Silo(world, aggregator, name) for name in SILOS]
        silos[3].silent = True
        runs = [asyncio.create_task(one.run()) for one in silos]
        await until_failed(aggregator, FOUR, 2)
        assert turnouts(aggregator)[FOUR].paused_until == 3
        silos[3].silent = False
        await gone_on(runs)
        with aggregator.state.store.read() as view:
            manifests = view.messages_of_job(JOB, "manifest")
            shown = aggregator.state.turnouts.told(view, job_row(view, JOB))
            failed = totals(view)["failed"]
    came = [FOUR in by_silo for by_silo in manifests.values()]
    assert came == [False, False, False, True, True]
    assert failed == 2
    assert shown[FOUR] == {
        "invited": 4,
        "summed": 2,
        "refused": 0,
        "failed": 2,
        "left_out": 0,
        "paused_until": 0,
    }
    assert (shown[ONE]["invited"], shown[ONE]["summed"]) == (5, 5)
    again = world.build_aggregator()
    assert turnouts(again)[FOUR].failed == 2
    again.state.store.close()


@on_loop
async def test_a_silo_that_sits_out_is_invited_where_the_minimum_needs_it(tmp_path: Path) -> None:
    world = World(tmp_path, federation=Federation(silos=3), grace_s=0.2)
    spec = world.federation.job_spec(rounds=2, round_deadline_s=1, min_silos=3)
    aggregator = world.build_aggregator(presence_s=60)
    async with world.running(aggregator):
        await submit(world, aggregator, spec)
        silos = [Silo(world, aggregator, name) for name in SILOS[:3]]
        silos[2].silent = True
        runs = [asyncio.create_task(one.run()) for one in silos]
        await until_failed(aggregator, THREE, 1)
        # Everybody lost that round, which is two strikes.
        assert turnouts(aggregator)[THREE].paused_until == 2
        silos[2].silent = False
        await gone_on(runs)
        assert turnouts(aggregator)[THREE].summed == 1
    assert silos[0].results[-1].job_state == "finished"


@on_loop
async def test_a_turnout_is_undone_with_its_transaction(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    plan = world.federation.plan(world.federation.job_spec())
    kept = Turnouts()

    def interrupted() -> None:
        with aggregator.state.store.write() as transaction:
            kept.ended(transaction, plan, dict.fromkeys(plan.silos, "failed"), opened=True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    kept.forget()
    with aggregator.state.store.write() as transaction:
        assert dict(kept.of(transaction, plan.job)) == {}
        kept.began(transaction, plan, [FOUR])
        kept.ended(transaction, plan, {ONE: "summed"}, opened=True)
    assert turnouts(aggregator) == {
        ONE: replace(Turnout(), invited=1, summed=1),
        FOUR: replace(Turnout(), left_out=1, left_out_in_row=1),
    }
    aggregator.state.store.close()
