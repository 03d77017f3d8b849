"""Attacks on whole rounds: dropouts, refusals, crashes and lies end with a reason, never a wrong opening."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from aggregator.assembly import Aggregator
from policies.audit_sinks.sinks import Taken
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import Conflict, LedgerDamaged
from privacy.ids import Context, Digest
from privacy.plan import DpTerms, JobSpec
from privacy.transparency.leaf import parse_record
from privacy.update import model_digest
from privacy.wire.messages import RoundResult
from tests.aggregator_world import Silo, World, client_of, on_loop, send_share, submit
from tests.federation import Federation


async def _play(world: World, aggregator: Aggregator, spec: JobSpec, **odd: dict[str, Any]) -> dict[str, Any]:
    """Run a job to its end; ``odd`` says which silo misbehaves how (``silo_4={"refuses": True}``)."""
    silos = [
        Silo(world, aggregator, name, **odd.get(name.replace("-", "_"), {}))
        for name in world.federation.charter.silos
    ]
    runs = [asyncio.create_task(silo.run()) for silo in silos]
    await submit(world, aggregator, spec)
    view = await _until_ended(world, aggregator, spec)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    return view


async def _until_ended(world: World, aggregator: Aggregator, spec: JobSpec) -> dict[str, Any]:
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        view: dict[str, Any] = {"version": 0, "state": "waiting"}
        while view["state"] in ("waiting", "running"):
            params = {"after": view["version"], "wait_s": 20}
            answer = await client.get(f"/v1/jobs/{spec.job}", params=params)
            if answer.status_code == 200:
                view = answer.json()
        return view


@on_loop
async def test_a_silo_whose_budget_refused_is_not_asked_again_in_this_job(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec()
    async with world.running(world.build_aggregator()) as aggregator:
        view = await _play(world, aggregator, spec, silo_4={"refuses": True})
    assert (view["state"], view["openings"]) == ("finished", 2)
    assert [(r["round"], r["silo"], r["rule"]) for r in view["refusals"]] == [(1, "silo-4", "budget.job")]
    assert [round_["survivors"] for round_ in view["history"]] == [["silo-1", "silo-2", "silo-3"]] * 2


@on_loop
async def test_a_round_below_the_minimum_never_opens_and_the_job_says_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=5, round_deadline_s=1)
    silent = {"silent": True}
    async with world.running(world.build_aggregator()) as aggregator:
        view = await _play(world, aggregator, spec, silo_3=silent, silo_4=silent)
    assert (view["state"], view["openings"], view["round"]) == ("failed", 0, 2)
    assert "2 rounds in a row were aborted" in view["reason"]
    assert all(round_["outcome"] == "aborted" for round_ in view["history"])
    assert view["model"] == view["initial_model"]


@on_loop
async def test_when_too_many_refuse_the_round_ends_at_once_and_the_job_fails(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(round_deadline_s=600)
    refuses = {"refuses": True}
    async with world.running(world.build_aggregator()) as aggregator:
        view = await _play(world, aggregator, spec, silo_3=refuses, silo_4=refuses)
    assert view["state"] == "failed"
    assert "too few silos" in view["reason"]
    assert "silo-3, silo-4" in view["reason"]


@on_loop
async def test_a_job_looser_than_the_threat_model_fails_with_its_findings_before_any_round(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    dp = DpTerms(
        unit="patient", sample_rate=1.0, noise_multiplier=0.3, clip_l2=9.0, normaliser=20.0, delta=1e-5
    )
    spec = world.federation.job_spec(dp=dp)
    async with world.running(world.build_aggregator()) as aggregator:
        await submit(world, aggregator, spec)
        view = await _until_ended(world, aggregator, spec)
    assert (view["state"], view["round"], view["history"]) == ("failed", 0, [])
    assert "clip" in view["reason"]
    assert "epsilon" in view["reason"]


@on_loop
async def test_after_a_restart_the_open_round_goes_on_under_the_same_context(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec()
    names = world.federation.charter.silos
    first = world.build_aggregator()
    work = asyncio.create_task(first.loop.run())
    mute = [asyncio.create_task(Silo(world, first, name, silent=True).run()) for name in names]
    await submit(world, first, spec)
    await asyncio.wait_for(_until(lambda: first.state.current is not None), 20)
    assert first.state.current is not None
    ctx = first.state.current.ctx
    for task in [work, *mute]:
        task.cancel()  # as kill -9 would: nothing is told to anybody
    await asyncio.gather(work, *mute, return_exceptions=True)
    first.state.store.close()
    async with world.running(world.build_aggregator()) as second:
        runs = [asyncio.create_task(Silo(world, second, name).run()) for name in names]
        view = await _until_ended(world, second, spec)
        await asyncio.gather(*runs)
    assert [(r["round"], r["outcome"]) for r in view["history"]] == [(1, "opened"), (2, "opened")]
    assert view["history"][0]["context"] == ctx
    assert (view["state"], view["openings"]) == ("finished", 2)


@on_loop
async def test_a_crash_between_opening_and_publishing_gives_the_same_result_by_the_same_opening(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    names = world.federation.charter.silos
    first = world.build_aggregator()
    crashed = asyncio.Event()

    async def crash(*_: object) -> None:
        crashed.set()
        await asyncio.Event().wait()

    first.loop._flow.open_and_publish = crash  # type: ignore[method-assign] # the moment of the crash
    work = asyncio.create_task(first.loop.run())
    update = np.full(3, 0.5, dtype=np.float32)
    runs = [asyncio.create_task(Silo(world, first, name, update).run()) for name in names]
    await submit(world, first, spec)
    await asyncio.wait_for(crashed.wait(), 20)
    for task in [work, *runs]:
        task.cancel()
    await asyncio.gather(work, *runs, return_exceptions=True)
    first.state.store.close()
    async with world.running(world.build_aggregator()) as second:
        view = await _until_ended(world, second, spec)
        model = np.frombuffer(second.state.models.read(view["model"]), dtype="<f4")
        with second.state.store.read() as stored:
            lines = list(second.state.store.log.lines(stored.connection))
    assert (view["state"], view["openings"]) == ("finished", 1)
    assert np.allclose(model, 0.5, atol=1e-5)
    assert sum(parse_record(line).kind == "sum_opened" for line in lines) == 1


@on_loop
async def test_the_database_itself_refuses_a_second_opening_and_a_repeated_round_number(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    async with world.running(world.build_aggregator()) as aggregator:
        view = await _play(world, aggregator, spec)
        ctx = Context(Digest(view["history"][0]["context"]))
        with (
            pytest.raises(Conflict, match="a second is refused"),
            aggregator.state.store.write() as transaction,
        ):
            transaction.add_opening(ctx, Digest("0" * 64), Taken(0))
        with (
            pytest.raises(Conflict, match="a round never repeats"),
            aggregator.state.store.write() as transaction,
        ):
            transaction.add_round(Context(Digest("1" * 64)), spec.job, 1, "collecting")


@on_loop
async def test_nothing_on_the_aggregators_disk_holds_an_update_or_a_share(tmp_path: Path) -> None:
    """Every stretch of four elements of every encoded update and share is looked for in every file."""
    world = World(tmp_path)
    spec = world.federation.job_spec(parameters=600, rounds=1)
    generator = np.random.default_rng(7)
    updates = {
        name: generator.normal(0, 0.3, 600).astype(np.float32) for name in world.federation.charter.silos
    }
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Silo(world, aggregator, name, update) for name, update in updates.items()]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
    secrets = [update.tobytes() for update in updates.values()]
    for silo in silos:
        shared = silo.sent[0]
        secrets += [shared.encoded.tobytes(), *shared.parts, *shared.sealed_seeds.values()]
    needles = {secret[start : start + 16] for secret in secrets for start in range(0, len(secret) - 15, 16)}
    files = [path for path in (tmp_path / "aggregator").rglob("*") if path.is_file()]
    assert any(path.name == "server.db" for path in files)
    for path in files:
        raw = path.read_bytes()
        windows = {raw[start : start + 16] for start in range(len(raw) - 15)}
        assert not windows & needles, path.name


@on_loop
async def test_a_share_server_alone_holds_no_encoded_update(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(parameters=600)
    plan = world.federation.plan(spec)
    offer = world.federation.offer(plan, world.federation.sign_job(spec))
    shared = world.federation.share(plan, "silo-1", np.full(600, 0.25, dtype=np.float32))
    for client in world.to_servers("aggregator").values():
        await client.post("/v1/rounds", content=canonical_bytes(offer))
    await send_share(world.to_servers("silo-1"), shared)
    needle = shared.encoded[:4].tobytes()
    for server in world.servers:
        for path in (tmp_path / server).rglob("*"):
            assert not path.is_file() or needle not in path.read_bytes()
    assert not list((tmp_path / "server-1" / "parts").rglob("*"))


@on_loop
async def test_a_silo_answers_once_in_its_own_name_and_in_its_own_round(tmp_path: Path) -> None:
    world = World(tmp_path)
    federation = world.federation
    spec = federation.job_spec(round_deadline_s=600)
    aggregator = world.build_aggregator()
    async with world.running(aggregator):
        mute = [
            asyncio.create_task(Silo(world, aggregator, name, silent=True).run())
            for name in federation.charter.silos
        ]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(_until(lambda: aggregator.state.current is not None), 20)
        assert aggregator.state.current is not None
        plan = aggregator.state.current.round.plan
        path = f"/v1/rounds/{plan.context}/manifests"
        one, other = federation.share(plan, "silo-1"), federation.share(plan, "silo-1")
        async with client_of(aggregator.app, federation.certificate_der("silo-1")) as silo:
            theirs = federation.share(plan, "silo-2").envelope
            assert (await silo.post(path, content=canonical_bytes(theirs))).status_code == 403
            elsewhere = federation.share(federation.plan(spec), "silo-1").envelope
            assert (await silo.post(path, content=canonical_bytes(elsewhere))).status_code == 401
            altered = one.manifest.model_copy(update={"model": Digest("0" * 64)})
            signed = federation.sign(altered, "manifest", plan.context, "silo-1")
            refused = await silo.post(path, content=canonical_bytes(signed))
            assert refused.json()["type"] == "urn:sealsum:policy-refusal"
            assert (await silo.post(path, content=canonical_bytes(one.envelope))).status_code == 202
            assert (await silo.post(path, content=canonical_bytes(one.envelope))).status_code == 202
            assert (await silo.post(path, content=canonical_bytes(other.envelope))).status_code == 409
            unknown = f"/v1/rounds/{'0' * 64}/manifests"
            assert (await silo.post(unknown, content=canonical_bytes(one.envelope))).status_code == 404
            assert (await silo.get("/v1/jobs/heart/evidence")).status_code == 403
            assert (await silo.post("/v1/jobs", content=b"{}")).status_code == 403
        for task in mute:
            task.cancel()


@on_loop
async def test_a_running_jobs_model_is_kept_from_the_researcher_until_the_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec()
    async with world.running(world.build_aggregator()) as aggregator:
        moved = {"update": np.full(3, 0.5, dtype=np.float32)}
        view = await _play(world, aggregator, spec, silo_1=moved)
        with aggregator.state.store.read() as stored:
            first = stored.message(
                Context(Digest(view["history"][0]["context"])), "result", aggregator.state.me
            )
        assert first is not None
        earlier = RoundResult.model_validate_json(first.body).model_out
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            refused = await client.get(f"/v1/models/{earlier}")
            assert (refused.status_code, "model_not_yet" in refused.text) == (422, True)
            assert (await client.get(f"/v1/models/{view['model']}")).status_code == 200
        async with client_of(aggregator.app, world.federation.certificate_der("silo-1")) as silo:
            assert (await silo.get(f"/v1/models/{earlier}")).status_code == 200


@on_loop
async def test_models_and_jobs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    federation = world.federation
    spec = federation.job_spec()
    aggregator = world.build_aggregator(model_bytes_max=4096)
    async with client_of(aggregator.app, federation.certificate_der("researcher")) as client:

        async def put(raw: bytes, digest: str) -> httpx.Response:
            params = {"architecture": spec.model.architecture}
            return await client.put(f"/v1/models/{digest}", params=params, content=raw)

        job = canonical_bytes(federation.sign_job(spec))
        early = await client.post("/v1/jobs", content=job)
        assert (early.status_code, "uploaded before" in early.text) == (422, True)
        assert (await put(federation.initial_model(), sha256_hex(b"other"))).status_code == 422
        assert (await put(bytes(5000), spec.initial_model)).status_code == 413
        odd = bytes(13)
        assert (await put(odd, model_digest(spec.model, [odd]))).status_code == 422
        assert aggregator.state.models.names() == []  # what no limit counts must not stay
        assert (await put(federation.initial_model(), spec.initial_model)).status_code == 201
        assert (await put(federation.initial_model(), spec.initial_model)).status_code == 200
        nan = np.array([np.nan, 0, 0], dtype="<f4").tobytes()
        poisoned = federation.job_spec(job="nan", initial_model=model_digest(spec.model, [nan]))
        assert (await put(nan, poisoned.initial_model)).status_code == 201
        answer = await client.post("/v1/jobs", content=canonical_bytes(federation.sign_job(poisoned)))
        assert (answer.status_code, "finite" in answer.text) == (422, True)
        by_silo = federation.sign(spec, "job", federation.charter.digest, "silo-1")
        assert (await client.post("/v1/jobs", content=canonical_bytes(by_silo))).status_code == 403
        assert (await client.post("/v1/jobs", content=job)).status_code == 201
        assert (await client.post("/v1/jobs", content=job)).status_code == 200
        other = federation.job_spec(purpose="another")
        again = await client.post("/v1/jobs", content=canonical_bytes(federation.sign_job(other)))
        assert again.status_code == 409
        foreign = Federation(name="elsewhere").job_spec()
        answer = await client.post("/v1/jobs", content=canonical_bytes(federation.sign_job(foreign)))
        assert answer.status_code == 422
    aggregator.state.store.close()


@on_loop
async def test_an_altered_log_keeps_the_server_from_starting(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    await submit(world, aggregator, world.federation.job_spec())
    store = aggregator.state.store
    with store.write() as transaction:
        transaction.record("request_refused", party="silo-1")
        transaction.connection.exec_driver_sql("DELETE FROM log_entries WHERE seq = 0")
    store.close()
    with pytest.raises(LedgerDamaged, match="expected entry 0, got entry 1"):
        world.build_aggregator()


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)
