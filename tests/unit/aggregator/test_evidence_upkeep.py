"""Upkeep of an aggregator: new work is held back and goes on; evidence is held and expires; the log stays."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete

from aggregator.assembly import Aggregator
from aggregator.retention import Retention
from aggregator.tables import charters
from privacy.canonical import canonical_bytes
from privacy.errors import Conflict, NotFound, OutOfOrder
from privacy.ids import Context, Digest, JobId
from privacy.plan import JobSpec
from privacy.transparency.leaf import parse_record
from privacy.wire.upkeep import DrainRequest, Expiry, ExpiryRequest, HoldRequest
from tests.access_world import AccessWorld
from tests.aggregator_world import Silo, World, client_of, on_loop, submit

DAY = 86_400
NOBODY = "op-0"


async def run_job(world: World, aggregator: Aggregator, job: str, rounds: int = 1) -> JobSpec:
    """A job that ran to its end, its shares scrubbed."""
    spec = world.federation.job_spec(job=job, rounds=rounds)
    update = np.full(spec.model.parameters, 0.01 * len(job), dtype=np.float32)
    silos = [Silo(world, aggregator, name, update).run() for name in world.federation.charter.silos]
    await submit(world, aggregator, spec)
    async with asyncio.timeout(30):
        await asyncio.gather(*silos)
        while await asyncio.sleep(0.01, result=_unscrubbed(aggregator)):
            pass
    return spec


def _unscrubbed(aggregator: Aggregator) -> bool:
    with aggregator.state.store.read() as view:
        return bool(view.connection.exec_driver_sql("SELECT 1 FROM rounds WHERE scrubbed = 0").all())


def at_day(aggregator: Aggregator, days: float) -> Retention:
    """Retention as it will be so many days from now."""
    return Retention(aggregator.state.store, aggregator.state.models, lambda: time.time() + days * DAY)


def expire(aggregator: Aggregator, days: float, older_than: int = 0, dry_run: bool = False) -> Expiry:
    wanted = ExpiryRequest(older_than_days=older_than, dry_run=dry_run)
    return at_day(aggregator, days).expire(wanted, NOBODY)


def entries(aggregator: Aggregator) -> list[Any]:
    with aggregator.state.store.read() as view:
        return [parse_record(line) for line in aggregator.state.store.log.lines(view.connection)]


def messages_of(aggregator: Aggregator, spec: JobSpec) -> int:
    with aggregator.state.store.read() as view:
        return sum(len(found) for found in view.messages_of_job(spec.job, "result").values())


async def until(aggregator: Aggregator, kind: str) -> None:
    async with asyncio.timeout(20):
        while kind not in [one.kind for one in entries(aggregator)]:
            await asyncio.sleep(0.01)


# --- holding new work back ---


@on_loop
async def test_a_drained_aggregator_begins_no_job_until_it_is_resumed(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        maintenance = aggregator.state.maintenance
        maintenance.begin(DrainRequest(what="jobs", reason="disk is replaced"), NOBODY)
        spec = world.federation.job_spec(rounds=1)
        silos = [
            asyncio.create_task(Silo(world, aggregator, n).run()) for n in world.federation.charter.silos
        ]
        await submit(world, aggregator, spec)
        await asyncio.sleep(0.3)
        assert "round_offered" not in [one.kind for one in entries(aggregator)]
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            listed = (await client.get("/v1/job-list")).json()["jobs"]
            view = (await client.get(f"/v1/jobs/{spec.job}")).json()
        assert listed[0]["reason"] == view["reason"] == "held back by the operator: disk is replaced"
        maintenance.end(NOBODY)
        async with asyncio.timeout(30):
            await asyncio.gather(*silos)
        told = [one for one in entries(aggregator) if one.kind.startswith("drain")]
        assert [(one.kind, one.body["person"]) for one in told] == [
            ("drain_began", NOBODY),
            ("drain_ended", NOBODY),
        ]
        assert told[0].body["reason"] == "disk is replaced"


@on_loop
async def test_running_jobs_end_under_a_drain_of_jobs_and_pause_under_one_of_rounds(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        maintenance = aggregator.state.maintenance
        spec = world.federation.job_spec(rounds=4)
        silos = [
            asyncio.create_task(Silo(world, aggregator, n).run()) for n in world.federation.charter.silos
        ]
        await submit(world, aggregator, spec)
        await until(aggregator, "round_offered")
        maintenance.begin(DrainRequest(what="rounds", reason="database"), NOBODY)
        await until(aggregator, "model_published")
        await asyncio.sleep(0.3)
        begun = [one.kind for one in entries(aggregator)].count("round_offered")
        assert begun == [one.kind for one in entries(aggregator)].count("model_published") < 4
        maintenance.begin(DrainRequest(what="jobs", reason="database"), NOBODY)
        async with asyncio.timeout(30):
            await asyncio.gather(*silos)
        assert "job_ended" in [one.kind for one in entries(aggregator)]


def test_a_drain_outlives_a_restart_and_is_ended_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.build_aggregator()
    wanted = DrainRequest(what="jobs", reason="power")
    before.state.maintenance.begin(wanted, NOBODY)
    before.state.store.close()
    after = world.build_aggregator()
    assert after.state.maintenance.told() == "no new jobs"
    assert after.state.maintenance.begin(wanted, NOBODY).reason == "power"
    with pytest.raises(Conflict, match="expected none of jobs, got one that stands since"):
        after.state.maintenance.begin(DrainRequest(what="jobs", reason="other"), NOBODY)
    for _ in range(2):
        after.state.maintenance.end(NOBODY)
    assert after.state.maintenance.told() == "begins jobs and rounds"
    assert [one.kind for one in entries(after)].count("drain_ended") == 1
    after.state.store.close()


# --- keeping and deleting ---


@on_loop
async def test_an_expired_job_loses_models_messages_and_answers_but_the_log_still_verifies(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        spec = await run_job(world, aggregator, "heart", rounds=2)
        other = await run_job(world, aggregator, "lung")
    aggregator = world.build_aggregator()
    at_day(aggregator, 0).hold(HoldRequest(job=other.job, reason="file 7"), NOBODY)
    head, files = aggregator.state.store.log.head, aggregator.state.models.names()
    done = expire(aggregator, 3000)
    assert (done.expired, [one.job for one in done.kept]) == (("heart",), ["lung"])
    assert messages_of(aggregator, spec) == 0
    assert messages_of(aggregator, other) == 1
    gone = set(files) - set(aggregator.state.models.names())
    told = next(one for one in entries(aggregator) if one.kind == "job_expired")
    assert gone == set(told.body["models"])
    assert len(gone) == 2  # lung begins with the same model, and so it stays
    reasons = [one for one in entries(aggregator) if one.kind == "job_ended"]
    assert [("reason" in one.body, one.body["state"]) for one in reasons] == [
        (False, "finished"),
        (True, "finished"),
    ]
    store = aggregator.state.store
    with store.read() as view:
        proof = store.log.consistency(view.connection, head.size, store.log.head.size)
    assert proof
    store.close()
    again = world.build_aggregator()  # verifies the whole log, leaf by leaf
    assert again.state.store.log.head.size == store.log.head.size
    der = world.federation.certificate_der("researcher")
    async with client_of(again.app, der) as client:
        assert (await client.get("/v1/jobs/heart/evidence")).status_code == 409
        assert (await client.get("/v1/jobs/lung/evidence")).status_code == 200
    with pytest.raises(OutOfOrder, match="its evidence was deleted"):
        at_day(again, 0).hold(HoldRequest(job="heart", reason="too late"), NOBODY)
    again.state.store.close()


@on_loop
async def test_what_a_hold_or_the_threat_model_keeps_stays_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        spec = await run_job(world, aggregator, "heart")
        running = world.federation.job_spec(job="lung")
        await submit(world, aggregator, running, approved=False)
        (kept,) = expire(aggregator, 1).kept
        assert (kept.job, kept.rule) == ("heart", "evidence.retention")
        assert expire(aggregator, 1, older_than=30) == Expiry(dry_run=False, expired=(), kept=())
        at_day(aggregator, 0).hold(HoldRequest(job=spec.job, reason="file 7"), NOBODY)
        (kept,) = expire(aggregator, 3000).kept
        assert kept.rule == "evidence.legal_hold"
        assert "file 7" in kept.why
        with pytest.raises(Conflict, match="held already"):
            at_day(aggregator, 0).hold(HoldRequest(job=spec.job, reason="again"), NOBODY)
        at_day(aggregator, 0).hold(HoldRequest(job=spec.job, reason="file 7"), NOBODY)
        for _ in range(2):
            at_day(aggregator, 0).release(JobId(spec.job), NOBODY)
        with pytest.raises(NotFound, match="job hearts: there is"):
            at_day(aggregator, 0).release(JobId("hearts"), NOBODY)
        assert expire(aggregator, 3000, dry_run=True).expired == ("heart",)
        assert messages_of(aggregator, spec) == 1
        assert expire(aggregator, 3000).expired == ("heart",)
        assert expire(aggregator, 3000).expired == ()
        said = [one.kind for one in entries(aggregator)]
        assert [kind for kind in said if kind in ("job_held", "hold_released", "job_expired")] == [
            "job_held",
            "hold_released",
            "job_expired",
        ]


@on_loop
async def test_a_job_whose_charter_is_not_here_stays_and_does_not_stop_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        await run_job(world, aggregator, "heart")
        with aggregator.state.store.write() as transaction:
            transaction.connection.execute(delete(charters))
        (kept,) = expire(aggregator, 3000).kept
        assert (kept.job, kept.rule) == ("heart", "evidence.no_charter")


@on_loop
async def test_a_crash_between_rows_and_files_is_made_good_at_the_next_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        spec = await run_job(world, aggregator, "heart")
        retention = at_day(aggregator, 3000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "unlink", _power_cut)
            with pytest.raises(OSError, match="power"):
                retention.expire(ExpiryRequest(older_than_days=0), NOBODY)
        assert messages_of(aggregator, spec) == 0
        assert len(aggregator.state.models.names()) == 2
    again = world.build_aggregator()
    assert again.state.models.names() == []
    again.state.store.close()


def _power_cut(path: Path, missing_ok: bool = False) -> None:
    raise OSError(f"power cut before {path.name[:8]}")


@on_loop
async def test_no_round_number_or_job_name_comes_back_with_expiry(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        spec = await run_job(world, aggregator, "heart")
        assert expire(aggregator, 3000).expired == ("heart",)
        with aggregator.state.store.write() as transaction, pytest.raises(Conflict, match="has been used"):
            transaction.add_round(Context(Digest("ab" * 32)), JobId(spec.job), 1, "collecting")
        other = world.federation.sign_job(world.federation.job_spec(job="heart", rounds=3))
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            model = world.federation.initial_model(spec.model.parameters)
            await client.put(
                f"/v1/models/{spec.initial_model}",
                params={"architecture": spec.model.architecture},
                content=model,
            )
            answer = await client.post("/v1/jobs", content=canonical_bytes(other))
        assert answer.status_code == 409, answer.text


@on_loop
async def test_upkeep_is_asked_over_the_api_by_those_whose_it_is(tmp_path: Path) -> None:
    people = AccessWorld(tmp_path)
    aggregator = people.aggregator()
    async with people.client(aggregator.app, people.certificate("site_admin")) as admin:
        drained = await admin.post("/v1/drain", content=canonical_bytes({"what": "jobs", "reason": "x"}))
        assert drained.status_code == 200, drained.text
        assert drained.json()["drain"]["what"] == "jobs"
        odd = await admin.post("/v1/drain", content=canonical_bytes({"what": "jobs", "reason": "a\nb"}))
        assert odd.status_code == 400
        gone = await admin.post("/v1/holds", content=canonical_bytes({"job": "none", "reason": "x"}))
        assert gone.status_code == 404
        asked = {"older_than_days": 0, "dry_run": True}
        expired = await admin.post("/v1/expire", content=canonical_bytes(asked))
        assert expired.json() == {"dry_run": True, "expired": [], "kept": []}
        assert (await admin.delete("/v1/holds/none")).status_code == 403
        assert (await admin.delete("/v1/drain")).json() == {"drain": None, "holds": []}
    told = [one for one in entries(aggregator) if one.kind.startswith("drain")]
    assert [one.kind for one in told] == ["drain_began", "drain_ended"]
    assert all(one.body["person"] != "person-site-admin" for one in told)
    aggregator.state.store.close()
