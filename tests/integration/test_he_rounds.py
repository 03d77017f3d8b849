"""``bfv`` and ``ckks`` carried: agents' halves and a real aggregator; the sum is the survivors' plain sum."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import select

from aggregator.round_flow import RoundFlow
from aggregator.schemes.flow import keep
from aggregator.tables import he_keys
from privacy.errors import ConfigurationError
from privacy.secagg.he.framing import CIPHERTEXTS_PER_PART
from privacy.secagg.he.messages import CiphertextManifest
from silo_agent.delivery import Delivery
from silo_agent.job_secrets import JobSecrets
from tests.aggregator_world import on_loop
from tests.he_world import HeWorld, he_federation
from tests.pairwise_world import Gone, files_under, oracle_model

SCHEMES = ("bfv", "ckks")
STEPS = ("ciphertexts", "opened")


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_each_round_of_a_job_opens_exactly_the_plain_sum(tmp_path: Path, scheme: str) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    spec, silos = world.spec(rounds=2), world.silos()
    async with world.running() as aggregator:
        view = await world.run_job(spec, silos)
        assert [silo.faults for silo in silos] == [[], [], [], []]
        assert (view["state"], view["openings"], view["refusals"]) == ("finished", 2, [])
        first = oracle_model(spec, silos, 0)
        assert await world.model(view["model"]) == oracle_model(spec, silos, 1, first)
        taken = [body for kind, body in world.log() if kind == "he_key_taken"]
        assert len(taken) == 1, "one key a job, whatever the number of rounds"
        with aggregator.state.store.read() as view_:
            assert view_.connection.execute(select(he_keys)).all() == [], "gone with the job"


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_an_update_of_several_encrypted_parts_is_summed_part_by_part(
    tmp_path: Path, scheme: str
) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    payload = 2047 if scheme == "bfv" else 4095
    spec = world.spec(parameters=CIPHERTEXTS_PER_PART * payload + 7)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)


def _puts(world: HeWorld, name: str) -> list[str]:
    """Index of each file of that name which a silo has sent, in order of indices."""
    return sorted(
        path.split("/")[-1] for method, path, _ in world.calls if method == "PUT" and f"/{name}/" in path
    )


@on_loop
async def test_each_part_of_an_opened_sum_travels_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privacy.secagg.parts.PART_ELEMENTS", 2)
    world = HeWorld(tmp_path)
    spec = world.spec(parameters=10)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        assert _puts(world, "opened") == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.slow
@on_loop
async def test_parts_of_an_opened_sum_whose_silo_has_left_are_sent_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privacy.secagg.parts.PART_ELEMENTS", 2)
    world = HeWorld(tmp_path)
    spec = world.spec(parameters=10, round_deadline_s=6)
    async with world.running():
        silos = world.silos()

        def gone(_inbox: Any) -> Any:
            raise Gone

        silos[0].shown["opened"] = gone
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        assert any("total" in silo.sent for silo in silos[1:])
        assert {"0", "4"} <= set(_puts(world, "opened"))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("leaver", ["silo_1", "silo_4"])
@on_loop
async def test_the_sum_is_that_of_the_survivors_whichever_step_a_silo_leaves_at(
    tmp_path: Path, scheme: str, step: str, leaver: str
) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    spec = world.spec(round_deadline_s=5)
    async with world.running():
        silos = world.silos(**{leaver: {"leaves": step}})
        view = await world.run_job(spec, silos)
        assert view["state"] == "finished", view
        # Who leaves after the upload is in the sum all the same: the others open it.
        survivors = [one for one in silos if one.name != leaver.replace("_", "-") or step == "opened"]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "openings"), [("ciphertexts", 0), ("opened", 1)])
@on_loop
async def test_with_too_few_silos_left_at_a_step_the_round_ends_by_name_and_nothing_is_published(
    tmp_path: Path, step: str, openings: int
) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos(silo_2={"leaves": step}, silo_3={"leaves": step})
        view = await world.run_job(world.spec(round_deadline_s=5), silos)
        (ended,) = view["history"]
        assert (view["state"], ended["outcome"], ended["survivors"]) == ("failed", "aborted", [])
        named = "survivors_below_minimum" if step == "ciphertexts" else "silent: silo-2, silo-3"
        assert named in ended["reason"]
        assert view["openings"] == openings, "a sum that was handed out is used up"
        assert "model_published" not in [kind for kind, _ in world.log()]


@pytest.mark.slow
@on_loop
async def test_a_round_in_which_nobody_uploads_ends_by_name(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos(**{f"silo_{number}": {"leaves": "ciphertexts"} for number in range(1, 5)})
        view = await world.run_job(world.spec(round_deadline_s=5), silos)
        assert "expected those of some silos, got none" in view["history"][0]["reason"]


@pytest.mark.slow
@on_loop
async def test_a_silo_that_comes_after_the_ciphertexts_are_closed_is_refused_and_not_in_the_sum(
    tmp_path: Path,
) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec(round_deadline_s=6)
    async with world.running():
        silos = world.silos()

        def late(messages: Any) -> Any:
            world.wait_until(lambda one: one.round.phase != "collecting")
            return messages

        silos[3].tampers["ciphertexts"] = late  # type: ignore[index]
        view = await world.run_job(spec, silos)
        assert view["history"][0]["survivors"] == ["silo-1", "silo-2", "silo-3"]
        assert await world.model(view["model"]) == oracle_model(spec, silos[:3])
        assert "opened" not in silos[3].inboxes
        assert len(silos[3].faults) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_a_large_update_is_encrypted_in_processes_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr("silo_agent.schemes.he._WORTH_PROCESSES", 1)
    world = HeWorld(tmp_path, he_federation(scheme))
    spec = world.spec(parameters=200_000, round_deadline_s=90)
    async with world.running():
        silos = world.silos()
        await world.submit(spec)
        await world.work(silos, 150)
        view = await world.view()
        assert await world.model(view["model"]) == oracle_model(spec, silos)


@on_loop
async def test_a_silo_that_refuses_is_not_waited_for_and_its_peers_sum_without_it(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec(round_deadline_s=60)
    async with world.running():
        silos = world.silos(silo_3={"refuses": True})
        view = await world.run_job(spec, silos)
        survivors = [silo for silo in silos if silo.name != "silo-3"]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)
        assert [refusal["silo"] for refusal in view["refusals"]] == ["silo-3"]


@on_loop
async def test_whatever_is_sent_twice_counts_once(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_1={"twice": True}, silo_2={"twice": True})
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)


@pytest.mark.parametrize(
    ("when", "step"),
    [
        ("before", "parts"),
        ("before", "ciphertexts"),
        ("after", "ciphertexts"),
        ("before", "opened"),
        ("after", "opened"),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_a_silo_that_crashes_after_its_update_is_whole_goes_on_with_the_same_bytes(
    tmp_path: Path, scheme: str, when: Literal["before", "after"], step: str
) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": (when, step)})
        view = await world.run_job(spec, silos)
        assert view["history"][0]["survivors"] == [silo.name for silo in silos]
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        for sent in silos[1].sent.values():
            assert len(set(sent)) == 1, "one message a step, however often it is sent"


@on_loop
async def test_of_silos_that_make_a_key_at_once_one_wins_and_the_others_take_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HeWorld(tmp_path)
    spec, barrier, asked = world.spec(), threading.Barrier(4), set()
    fetch = Delivery.job_key

    def at_once(self: Delivery, job: Any) -> Any:
        found = fetch(self, job)
        if self not in asked:
            asked.add(self)
            barrier.wait(30)
        return found

    monkeypatch.setattr(Delivery, "job_key", at_once)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        offers = [
            status
            for method, path, status in world.calls
            if (method, path) == ("PUT", "/v1/jobs/heart/he-key")
        ]
        assert sorted(offers) == [201, 409, 409, 409]
        keys = {CiphertextManifest.model_validate_json(s.sent["ciphertexts"][0][0].body).key for s in silos}
        (taken,) = [body for kind, body in world.log() if kind == "he_key_taken"]
        assert keys == {taken["key"]}


@on_loop
async def test_a_silo_that_joins_in_a_later_round_fetches_the_jobs_key(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        late = {"before_offers": lambda: world.wait_until(lambda one: one.round.phase != "collecting")}
        silos = world.silos(silo_4=late)
        view = await world.run_job(spec, silos)
        first, second = view["history"]
        assert (first["survivors"], second["survivors"]) == (
            ["silo-1", "silo-2", "silo-3"],
            ["silo-1", "silo-2", "silo-3", "silo-4"],
        )
        assert view["state"] == "finished"
        assert len([kind for kind, _ in world.log() if kind == "he_key_taken"]) == 1


@on_loop
async def test_a_silo_whose_key_is_gone_before_the_sum_is_out_opens_nothing_and_says_so(
    tmp_path: Path,
) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": ("after", "ciphertexts")})
        silos[1].shown["opened"] = lambda inbox: (JobSecrets(silos[1].directory).forget(spec.digest), inbox)[
            1
        ]
        view = await world.run_job(spec, silos)
        assert "silo silo-2 does not open the sum (sum.refused)" in view["history"][0]["reason"]
        assert view["openings"] == 1


@pytest.mark.parametrize("step", STEPS)
@on_loop
async def test_an_aggregator_killed_in_a_step_goes_on_with_it_unless_what_it_takes_is_never_stored(
    tmp_path: Path, step: str
) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        await world.submit(spec)
    silos = world.silos()
    # One silo holds the step open until the aggregator is dead.
    dead = threading.Event()
    silos[0].tampers[step] = lambda messages: (dead.wait(30), messages)[1]  # type: ignore[index]
    work = asyncio.create_task(world.work(silos))
    async with world.killed(
        lambda one: one.state.current is not None and one.state.current.desk.is_open(step)
    ):
        pass
    del silos[0].tampers[step]  # type: ignore[arg-type]
    async with world.running():
        dead.set()
        await work
        view = await world.view()
        ended, opened = view["history"]
        goes_on = step != "opened"
        assert (view["state"], opened["outcome"]) == ("finished", "opened")
        assert ended["outcome"] == ("opened" if goes_on else "aborted")
        assert goes_on or ended["reason"].startswith("aggregator restarted")
        assert view["openings"] == 2, "an opening on record stays used up"
        before = oracle_model(spec, silos) if goes_on else None
        assert await world.model(view["model"]) == oracle_model(spec, silos, -1, before)
    # It ends only when what was scrubbed beside the rounds is gone.
    assert list(files_under(tmp_path / "aggregator" / "parts")) == [], "ciphertexts are scrubbed"
    assert list(files_under(tmp_path / "aggregator" / "sums")) == [], "sums are scrubbed"


@on_loop
async def test_an_aggregator_killed_between_clearing_and_recording_hands_out_the_sum_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HeWorld(tmp_path)
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
        patched.setattr("aggregator.schemes.he.keep", killed_at_record)
        work = asyncio.create_task(world.work(silos))
        async with world.killed(lambda one: True):
            await asyncio.wait_for(cleared.wait(), 30)
    async with world.running():
        await work
        view = await world.view()
    assert [ended["outcome"] for ended in view["history"]] == ["opened", "opened"]
    assert view["openings"] == 2
    assert all(len(silo.sent["opened"]) == 2 for silo in silos), "once a round, after its record"


@on_loop
async def test_an_aggregator_killed_once_the_silos_have_said_the_sum_publishes_that_very_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        await world.submit(spec)
    silos, said = world.silos(), asyncio.Event()

    async def killed_before_publishing(*given: Any) -> None:
        said.set()
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(RoundFlow, "open_and_publish", killed_before_publishing)
        work = asyncio.create_task(world.work(silos))
        async with world.killed(lambda one: True):
            await asyncio.wait_for(said.wait(), 30)
    async with world.running():
        await work
        view = await world.view()
        assert (view["state"], view["openings"]) == ("finished", 1)
        assert await world.model(view["model"]) == oracle_model(spec, silos)


def test_a_federation_whose_scheme_needs_tenseal_is_not_served_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privacy.secagg.he.parameters.find_spec", lambda name: None)

    @on_loop
    async def build() -> None:
        HeWorld(tmp_path).build()

    with pytest.raises(ConfigurationError, match=r"pip install 'sealsum\[he\]'"):
        build()
