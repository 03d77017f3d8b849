"""Attacks on recorded rounds: a party whose audit sinks take nothing opens nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aggregator.assembly import Aggregator, assemble_share_server
from aggregator.settings import ShareServerSettings
from policies.audit_sinks.jsonl import JsonlSink
from policies.audit_sinks.settings import SinkSettings, SyslogSinkSettings
from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from privacy.transparency.leaf import parse_record
from tests.aggregator_world import Silo, World, client_of, on_loop, submit


def _nobody(tmp_path: Path) -> tuple[SinkSettings, ...]:
    return (SyslogSinkSettings(name="siem", type="syslog", url=f"unix://{tmp_path}/nobody"),)


async def _play(world: World, aggregator: Aggregator, spec: JobSpec) -> dict[str, Any]:
    runs = [
        asyncio.create_task(Silo(world, aggregator, name).run()) for name in world.federation.charter.silos
    ]
    await submit(world, aggregator, spec)
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        view: dict[str, Any] = {"version": 0, "state": "waiting"}
        while view["state"] in ("waiting", "running"):
            answer = await client.get(f"/v1/jobs/{spec.job}", params={"after": view["version"], "wait_s": 20})
            view = answer.json() if answer.status_code == 200 else view
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    return view


def _kinds(store: Any) -> list[str]:
    with store.read() as view:
        return [parse_record(line).kind for line in store.log.lines(view.connection)]


@on_loop
async def test_an_aggregator_whose_sinks_take_nothing_opens_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    dead = {"audit_sinks": _nobody(tmp_path), "audit_wait_s": 0.1}
    async with world.running(world.build_aggregator(**dead)) as aggregator:
        view = await _play(world, aggregator, spec)
        kinds = _kinds(aggregator.state.store)
    assert (view["state"], view["openings"]) == ("failed", 0)
    assert "evidence.not_taken" in str(view)
    assert not {"cohort_cleared", "sum_opened", "model_published"} & set(kinds)
    # The failing sink is itself on record.
    assert "sink_failed" in kinds
    for server in world.servers.values():
        assert "share_released" not in _kinds(server.store)


@on_loop
async def test_a_sink_that_dies_in_the_midst_of_a_job_ends_its_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=50)
    sent: list[int] = []
    honest = JsonlSink.send

    def dying(sink: JsonlSink, entries: list[Any]) -> None:
        if "/aggregator/" in str(sink._path):
            sent.extend(one.record.seq for one in entries if one.record.kind == "sum_opened")
            if len(sent) >= 2:
                raise OSError(28, "No space left on device")
        honest(sink, entries)

    monkeypatch.setattr(JsonlSink, "send", dying)
    async with world.running(world.build_aggregator(audit_wait_s=0.1)) as aggregator:
        view = await _play(world, aggregator, spec)
        kinds = _kinds(aggregator.state.store)
    # The second opening was recorded when all before it was taken; after it nothing was.
    assert (view["state"], view["openings"]) == ("failed", 2)
    assert kinds.count("sum_opened") == 2


@on_loop
async def test_a_share_server_whose_sinks_take_nothing_releases_no_share(tmp_path: Path) -> None:
    world = World(tmp_path)
    server = next(iter(world.servers))
    world.servers[server].store.close()
    settings = ShareServerSettings(
        state_dir=tmp_path / server, listen="127.0.0.1:0", audit_sinks=_nobody(tmp_path), audit_wait_s=0.1
    )
    world.servers[server] = assemble_share_server(settings)
    spec = world.federation.job_spec(rounds=1)
    async with world.running(world.build_aggregator()) as aggregator:
        view = await _play(world, aggregator, spec)
    assert (view["state"], view["openings"]) == ("failed", 0)
    kinds = _kinds(world.servers[server].store)
    assert "survivors_signed" in kinds
    assert "share_released" not in kinds


@on_loop
async def test_each_sink_of_a_server_has_its_whole_log(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        view = await _play(world, aggregator, world.federation.job_spec(rounds=2))
        with aggregator.state.store.read() as stored:
            lines = list(aggregator.state.store.log.lines(stored.connection))
    assert view["state"] == "finished"
    assert (tmp_path / "aggregator" / "audit.jsonl").read_bytes().splitlines() == lines


def test_a_server_refuses_to_start_with_two_sinks_of_one_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    twice = _nobody(tmp_path) * 2
    with pytest.raises(ConfigurationError, match="audit_sinks: expected each name once"):
        world.build_aggregator(audit_sinks=twice)
