"""Whole rounds under a joint key: the aggregator's application and agents' halves, dropouts and restarts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from aggregator.schemes.threshold import FORGOTTEN
from privacy.errors import ConfigurationError
from privacy.ids import PartyId, SiloId
from privacy.secagg.threshold.kept import OpenFhe
from privacy.secagg.threshold.parameters import threshold_parameters_named
from silo_agent.refusals import finding_of
from tests.aggregator_world import on_loop
from tests.pairwise_world import AnyStep, files_under, oracle_model
from tests.threshold_world import ThresholdWorld, threshold_federation

pytestmark = pytest.mark.slow
SCHEMES = ["threshold_bfv", "threshold_ckks"]
STEPS = ["commit", "reveal", "manifest", "upload", "partial"]


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_a_job_without_dropouts_opens_the_exact_sum_of_all_in_each_of_its_rounds(
    tmp_path: Path, scheme: str
) -> None:
    world = ThresholdWorld(tmp_path, threshold_federation(scheme))
    spec = world.spec(rounds=2)
    async with world.running():
        silos = world.silos(silo_1={"twice": True})
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert (view["state"], view["openings"], view["refusals"]) == ("finished", 2, [])
        first = oracle_model(spec, silos, 0)
        assert await world.model(view["model"]) == oracle_model(spec, silos, 1, first)
    assert list(files_under(tmp_path / "aggregator" / "parts")) == [], "ciphertexts and partials are scrubbed"
    assert list(files_under(tmp_path / "aggregator" / "sums")) == [], "so is the sum, in both forms"


@pytest.mark.parametrize("step", ["commit", "reveal"])
@on_loop
async def test_a_silo_that_leaves_before_its_key_share_is_shown_costs_nothing(
    tmp_path: Path, step: AnyStep
) -> None:
    world = ThresholdWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"leaves": step})
        view = await world.run_job(spec, silos)
        survivors = [silo for silo in silos if silo.name != "silo-2"]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)


@pytest.mark.parametrize(("step", "openings"), [("manifest", 0), ("upload", 0), ("partial", 1)])
@on_loop
async def test_a_silo_that_leaves_afterwards_ends_the_round_by_name_and_nothing_is_published(
    tmp_path: Path, step: AnyStep, openings: int
) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos(silo_2={"leaves": step})
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert (view["state"], ended["outcome"], ended["survivors"]) == ("failed", "aborted", [])
        assert step in ended["reason"]
        assert "silo-2" in ended["reason"]
        # What was recorded before anybody was asked to help is used up, although nothing opened.
        assert view["openings"] == openings
        assert "model_published" not in [kind for kind, _ in world.log()]
    assert list(files_under(tmp_path / "aggregator" / "parts")) == []


@on_loop
async def test_with_too_few_silos_no_key_is_made(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos(silo_2={"leaves": "commit"}, silo_3={"leaves": "reveal"})
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert (ended["outcome"], view["openings"]) == ("aborted", 0)
        assert "reveal: expected at least 3 silos, got 2; no key is made" in ended["reason"]
        assert not any("manifest" in silo.sent for silo in silos)


@on_loop
async def test_a_silo_without_openfhe_refuses_before_it_signs_anything_and_the_others_sum(
    tmp_path: Path,
) -> None:
    world = ThresholdWorld(tmp_path)
    spec = world.spec()
    missing = OpenFhe(tmp_path / "no-python")
    async with world.running():
        silos = world.silos(silo_3={"openfhe": missing})
        view = await world.run_job(spec, silos)
        (fault,) = silos[2].faults
        assert isinstance(fault, ConfigurationError)
        assert "threshold_he.python" in str(fault)
        assert "make threshold-he" in str(fault)
        assert (silos[2].sent, silos[2].encoded) == ({}, [])
        assert [refusal["rule"] for refusal in view["refusals"]] == [finding_of(fault).rule]
        assert await world.model(view["model"]) == oracle_model(spec, silos[:2] + silos[3:])


@on_loop
async def test_a_silo_that_comes_after_the_commitments_are_closed_is_not_offered_the_round(
    tmp_path: Path,
) -> None:
    world = ThresholdWorld(tmp_path)
    world.gone.add(("silo-4", ""))
    spec = world.spec()
    async with world.running() as aggregator:
        with aggregator.state.presence.call(SiloId(PartyId("silo-4"))):
            pass  # seen just now, so it is invited; then it is away
        silos = world.silos(
            silo_4={"before_offers": lambda: world.wait_until(lambda one: one.desk.is_open("reveal"))}
        )
        view = await world.run_job(spec, silos)
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]
        assert (silos[3].sent, silos[3].faults) == ({}, [])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["commit", "reveal"])
@on_loop
async def test_a_silo_that_crashes_before_its_update_is_whole_signs_nothing_twice(
    tmp_path: Path, when: Literal["before", "after"], step: AnyStep
) -> None:
    world = ThresholdWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": (when, step)})
        view = await world.run_job(spec, silos)
        faults = [str(fault) for fault in silos[1].faults]
        assert faults[0] == "threshold: this silo began this round before it restarted; it begins none twice"
        assert all(len(sent) == 1 for sent in silos[1].sent.values())
        survivors = [silo for silo in silos if silo.name != "silo-2"]
        if (when, step) == ("after", "reveal"):  # its share is in the key
            assert view["history"][0]["outcome"] == "aborted"
            assert "silo-2" in view["history"][0]["reason"]
        else:
            assert await world.model(view["model"]) == oracle_model(spec, survivors)


@pytest.mark.parametrize(
    ("when", "step"),
    [
        ("before", "manifest"),
        ("after", "manifest"),
        ("before", "parts"),
        ("before", "upload"),
        ("after", "upload"),
        ("before", "partial"),
        ("after", "partial"),
    ],
)
@on_loop
async def test_a_silo_that_crashes_after_its_update_is_whole_goes_on_with_the_same_messages(
    tmp_path: Path, when: Literal["before", "after"], step: str
) -> None:
    world = ThresholdWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": (when, step)})
        view = await world.run_job(spec, silos)
        # Once its last message is there, the round may be over before it is back.
        over = "it is over" if (when, step) == ("after", "partial") else None
        assert [str(fault) for fault in silos[1].faults if over is None or over not in str(fault)] == []
        assert view["history"][0]["survivors"] == [silo.name for silo in silos], view
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        for sent in silos[1].sent.values():
            assert len(set(sent)) == 1, "one message a step, however often it is sent"


@pytest.mark.parametrize("step", STEPS)
@on_loop
async def test_an_aggregator_killed_in_a_step_goes_on_with_it_unless_what_it_takes_is_never_stored(
    tmp_path: Path, step: AnyStep
) -> None:
    world = ThresholdWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        await world.submit(spec)
    silos = world.silos()
    dead = threading.Event()  # one silo holds the step open until the aggregator is dead
    silos[0].tampers[step] = lambda messages: (dead.wait(60), messages)[1]
    work = asyncio.create_task(world.work(silos, 200))

    def in_step(one: Any) -> bool:
        return one.state.current is not None and one.state.current.desk.is_open(step)

    async with world.killed(in_step):
        pass
    del silos[0].tampers[step]
    async with world.running():
        dead.set()
        await work
        view = await world.view()
        ended, opened = view["history"]
        goes_on = step != "partial"
        assert (view["state"], opened["outcome"]) == ("finished", "opened")
        assert ended["outcome"] == ("opened" if goes_on else "aborted")
        assert goes_on or ended["reason"] == f"aggregator restarted; {FORGOTTEN}"
        assert view["openings"] == 2, "an opening on record stays used up"
        before = oracle_model(spec, silos) if goes_on else None
        assert await world.model(view["model"]) == oracle_model(spec, silos, -1, before)
    assert list(files_under(tmp_path / "aggregator" / "parts")) == []


@on_loop
async def test_an_update_of_several_parts_is_summed_part_by_part(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    row = threshold_parameters_named("tbfv-8192-168")
    spec = world.spec(parameters=32 * row.payload + 5)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert await world.model(view["model"]) == oracle_model(spec, silos)
