"""Whole pairwise rounds: the aggregator's application and the agents' halves, with dropouts and restarts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from aggregator.schemes.flow import keep
from aggregator.schemes.pairwise import FORGOTTEN
from privacy.ids import PartyId, SiloId
from privacy.secagg.pairwise.messages import KeyAdvert
from privacy.secagg.parts import PART_ELEMENTS
from tests.aggregator_world import on_loop
from tests.pairwise_world import PairwiseWorld, Step, files_under, oracle_model


@on_loop
async def test_a_job_without_dropouts_opens_the_sum_of_all_in_each_of_its_rounds(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert (view["state"], view["openings"], view["refusals"]) == ("finished", 2, [])
        first = oracle_model(spec, silos, 0)
        assert await world.model(view["model"]) == oracle_model(spec, silos, 1, first)


@on_loop
async def test_a_second_job_after_the_first_has_keys_and_masks_of_its_own(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        for number, job in enumerate(("heart", "lung")):
            spec = world.spec(job=job)
            view = await world.run_job(spec, silos)
            assert view["state"] == "finished"
            assert await world.model(view["model"]) == oracle_model(spec, silos, number)
    for silo in silos:
        first, second = (KeyAdvert.model_validate_json(sent[0].body) for sent in silo.sent["keys"])
        assert first.mask_key != second.mask_key
        assert first.seed_commitment != second.seed_commitment


@pytest.mark.slow
@pytest.mark.parametrize("step", ["keys", "shares", "masked", "consistency", "unmask"])
@on_loop
async def test_the_sum_is_that_of_the_survivors_whichever_step_a_silo_leaves_at(
    tmp_path: Path, step: Step
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"leaves": step})
        view = await world.run_job(spec, silos)
        assert view["state"] == "finished", view
        # Who leaves after the upload is in the sum all the same: its peers take its masks off.
        survivors = [silo for silo in silos if silo.name != "silo-2" or step in ("consistency", "unmask")]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "openings"), [("keys", 0), ("shares", 0), ("masked", 0), ("consistency", 0), ("unmask", 1)]
)
@on_loop
async def test_with_too_few_silos_left_at_a_step_the_round_ends_by_name_and_nothing_is_published(
    tmp_path: Path, step: Step, openings: int
) -> None:
    world = PairwiseWorld(tmp_path)
    async with world.running():
        silos = world.silos(silo_2={"leaves": step}, silo_3={"leaves": step})
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert (view["state"], ended["outcome"], ended["survivors"]) == ("failed", "aborted", [])
        assert "expected at least 3" in ended["reason"]
        assert "got 2" in ended["reason"]
        # What was recorded before anything could unmask is used up, although nothing came off.
        assert view["openings"] == openings
        assert "model_published" not in [kind for kind, _ in world.log()]


@on_loop
async def test_a_silo_that_refuses_is_not_waited_for_and_its_peers_sum_without_it(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_3={"refuses": True})
        view = await world.run_job(spec, silos)
        survivors = [silo for silo in silos if silo.name != "silo-3"]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)
        assert [refusal["silo"] for refusal in view["refusals"]] == ["silo-3"]


@pytest.mark.slow
@on_loop
async def test_a_silo_that_comes_after_the_keys_are_closed_is_not_offered_the_round(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running() as aggregator:
        with aggregator.state.presence.call(SiloId(PartyId("silo-4"))):
            pass  # seen just now, so it is invited; then it is away
        world.leave("silo-4")
        silos = world.silos(
            silo_4={"before_offers": lambda: world.wait_until(lambda one: one.desk.is_open("shares"))}
        )
        view = await world.run_job(spec, silos)
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]
        assert (silos[3].sent, silos[3].faults) == ({}, [])
        assert await world.model(view["model"]) == oracle_model(spec, silos[:3])


@on_loop
async def test_whatever_is_sent_twice_counts_once(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_1={"twice": True}, silo_2={"twice": True})
        view = await world.run_job(spec, silos)
        # What is sent again once all have sent their last message may find the round over.
        faults = [str(fault) for silo in silos for fault in silo.faults]
        assert [fault for fault in faults if "steps/unmask" not in fault or "it is over" not in fault] == []
        assert await world.model(view["model"]) == oracle_model(spec, silos)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["keys", "shares"])
@on_loop
async def test_a_silo_that_crashes_before_its_update_is_whole_signs_nothing_twice_and_is_a_dropout_by_name(
    tmp_path: Path, when: Literal["before", "after"], step: Step
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": (when, step)})
        view = await world.run_job(spec, silos)
        survivors = [silo for silo in silos if silo.name != "silo-2"]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)
        assert [str(fault) for fault in silos[1].faults] == [
            "pairwise: this silo began this round before it restarted; it begins none twice"
        ]
        assert all(len(sent) == 1 for sent in silos[1].sent.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "step"),
    [
        ("before", "parts"),
        ("before", "masked"),
        ("after", "masked"),
        ("before", "consistency"),
        ("after", "consistency"),
        ("before", "unmask"),
        ("after", "unmask"),
    ],
)
@on_loop
async def test_a_silo_that_crashes_after_its_update_is_whole_goes_on_with_the_same_bytes(
    tmp_path: Path, when: Literal["before", "after"], step: str
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": (when, step)})
        view = await world.run_job(spec, silos)
        # Once its last message is there, the round may be over, or end, while it sends again.
        over = ("it is over", "it ended", "it was deleted") if (when, step) == ("after", "unmask") else ()
        faults = [str(fault) for fault in silos[1].faults]
        assert [fault for fault in faults if not any(words in fault for words in over)] == []
        assert view["history"][0]["survivors"] == [silo.name for silo in silos]
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        for sent in silos[1].sent.values():
            assert len(set(sent)) == 1, "one message a step, however often it is sent"


@pytest.mark.slow
@pytest.mark.parametrize("step", ["keys", "shares", "masked", "consistency", "unmask"])
@on_loop
async def test_an_aggregator_killed_in_a_step_goes_on_with_it_unless_what_it_takes_is_never_stored(
    tmp_path: Path, step: Step
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        await world.submit(spec)
    silos = world.silos()
    # One silo holds the step open until the aggregator is dead.
    dead = threading.Event()
    silos[0].tampers[step] = lambda messages: (dead.wait(30), messages)[1]
    work = asyncio.create_task(world.work(silos))
    async with world.killed(
        lambda one: one.state.current is not None and one.state.current.desk.is_open(step)
    ):
        pass
    del silos[0].tampers[step]
    async with world.running():
        dead.set()
        await work
        view = await world.view()
        ended, opened = view["history"]
        goes_on = step != "unmask"
        assert (view["state"], opened["outcome"]) == ("finished", "opened")
        assert ended["outcome"] == ("opened" if goes_on else "aborted")
        assert goes_on or ended["reason"] == f"aggregator restarted; {FORGOTTEN}"
        assert view["openings"] == 2, "an opening on record stays used up"
        before = oracle_model(spec, silos) if goes_on else None
        assert await world.model(view["model"]) == oracle_model(spec, silos, -1, before)
    assert list(files_under(tmp_path / "aggregator" / "parts")) == [], "masked updates are scrubbed"


@pytest.mark.slow
@on_loop
async def test_an_aggregator_killed_between_clearing_and_recording_opens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        await world.submit(spec)
    silos = world.silos()
    cleared = asyncio.Event()

    async def killed_at_record(*given: Any) -> None:
        if given[2] == "record":
            cleared.set()
            raise asyncio.CancelledError
        await keep(*given)

    with monkeypatch.context() as patched:
        patched.setattr("aggregator.schemes.pairwise.keep", killed_at_record)
        work = asyncio.create_task(world.work(silos))
        async with world.killed(lambda one: True):
            await asyncio.wait_for(cleared.wait(), 30)
    async with world.running():
        await work
        view = await world.view()
    assert [ended["outcome"] for ended in view["history"]] == ["opened", "opened"]
    assert view["openings"] == 2
    assert all(len(silo.sent["unmask"]) == 2 for silo in silos), "once a round, after its record"


@pytest.mark.slow
@on_loop
async def test_an_update_of_several_parts_is_summed_part_by_part(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(parameters=PART_ELEMENTS + 5)
    async with world.running():
        silos = world.silos(silo_4={"leaves": "masked"})
        view = await world.run_job(spec, silos)
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]
        assert await world.model(view["model"]) == oracle_model(spec, silos[:3])
