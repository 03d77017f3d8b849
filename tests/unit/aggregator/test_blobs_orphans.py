"""Deleting what nothing knows, and never what a row knows, whichever of the two a crash left alone."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from aggregator.assembly import Aggregator
from aggregator.meters import ServerMeters
from aggregator.not_now import NotNow
from aggregator.orphan_rules import aggregator_collector, share_server_collector
from aggregator.orphans import Collector
from aggregator.settings import AggregatorSettings, ShareServerSettings
from privacy.canonical import canonical_bytes
from privacy.ids import Digest
from privacy.update import digest_under
from tests.access_world import AccessWorld
from tests.aggregator_world import World, client_of, on_loop

DAY_S = 24 * 3600.0
ARCHITECTURE = Digest("ab" * 32)


def collector_of(world: World, aggregator: Aggregator) -> Collector:
    settings = AggregatorSettings(state_dir=world.root / "aggregator", listen="127.0.0.1:0")
    return aggregator_collector(settings, aggregator.state.store, aggregator.stores)


def grow_old(path: Path) -> None:
    then = path.stat().st_mtime - 2 * DAY_S
    os.utime(path, (then, then))


async def put(world: World, aggregator: Aggregator, raw: bytes) -> tuple[Digest, int]:
    digest = digest_under(ARCHITECTURE, [raw])
    researcher = world.federation.certificate_der("researcher")
    answer = await client_of(aggregator.app, researcher).put(
        f"/v1/models/{digest}", params={"architecture": ARCHITECTURE}, content=raw
    )
    return digest, answer.status_code


@on_loop
async def test_a_model_without_a_row_goes_once_it_is_old_and_one_with_a_row_stays(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    models, collector = aggregator.state.models, collector_of(world, aggregator)
    kept, _ = await put(world, aggregator, b"four")
    for name in ("orphan", "young"):
        with models.draft() as draft:
            draft.write(b"x" * 10)
            draft.commit(name)
    for name in (kept, "orphan"):
        grow_old(models.path(name))
    found = await collector.collect()
    assert (found.deleted, found.deleted_bytes, found.missing) == (1, 10, ())
    assert models.names() == sorted([kept, "young"])
    assert (await collector.collect()).deleted == 0


@on_loop
async def test_a_row_whose_blob_is_gone_is_told_of_and_its_row_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    digest, _ = await put(world, aggregator, b"four")
    aggregator.state.models.scrub(digest)
    found = await collector_of(world, aggregator).collect()
    assert (found.deleted, found.missing) == (0, (f"models/{digest}",))
    assert await put(world, aggregator, b"four") == (digest, 201)  # what heals it
    assert (await collector_of(world, aggregator).collect()).missing == ()


@on_loop
async def test_a_model_that_is_collected_while_it_comes_again_is_asked_for_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    models, collector = aggregator.state.models, collector_of(world, aggregator)
    digest = digest_under(ARCHITECTURE, [b"four"])
    with models.draft() as draft:  # a crash left it without its row
        draft.write(b"four")
        draft.commit(digest)
    grow_old(models.path(digest))
    receive = models.receive

    async def then_collected(*given: object, **named: object) -> bool:
        new = await receive(*given, **named)
        assert (await collector.collect()).deleted == 1
        return bool(new)

    with monkeypatch.context() as patched:
        patched.setattr(models, "receive", then_collected)
        assert await put(world, aggregator, b"four") == (digest, 503)
    assert await put(world, aggregator, b"four") == (digest, 201)
    assert models.read(digest) == b"four"


@on_loop
async def test_what_silos_sent_in_rounds_that_nobody_knows_goes_and_open_rounds_keep_theirs(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    name = next(iter(world.servers))
    server = world.servers[name]
    parts = server.stores.opened["parts"]
    known, unknown = "11" * 32, "22" * 32
    with server.store.write() as transaction:
        transaction.add_round(known, "job", 1, "open")  # type: ignore[arg-type] # a context is a string here
    for ctx in (known, unknown):
        with parts.draft() as draft:
            draft.write(b"part")
            draft.commit(ctx, "silo-1", "00000")
        grow_old(tmp_path / name / "parts" / ctx / "silo-1" / "00000")
    settings = ShareServerSettings(state_dir=tmp_path / name, listen="127.0.0.1:0")
    collector = share_server_collector(settings, server.store, server.stores)
    assert (await collector.collect()).deleted == 1
    assert parts.names() == [known]


@on_loop
async def test_a_store_that_is_away_is_tried_again_and_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    collector = collector_of(world, aggregator)
    calls = []

    async def away() -> None:
        calls.append(1)
        collector.stop()
        raise NotNow("blobs: away")

    monkeypatch.setattr(collector, "collect", away)
    await collector.run(ServerMeters("aggregator", tmp_path).blobs)
    assert calls == [1]


@on_loop
async def test_a_failure_of_the_collector_ends_the_servers_work_and_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    collector = collector_of(world, world.build_aggregator())

    async def broken() -> None:
        raise RuntimeError("ours")

    async def work() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(collector, "collect", broken)
    with pytest.raises(RuntimeError, match="ours"):
        async with asyncio.timeout(5):
            await collector.beside(work, ServerMeters("aggregator", tmp_path).blobs)


@on_loop
async def test_a_site_admin_is_told_what_would_go_before_it_goes_and_nobody_else_is(tmp_path: Path) -> None:
    people = AccessWorld(tmp_path)
    aggregator = people.aggregator()
    models = aggregator.state.models
    with models.draft() as draft:
        draft.write(b"x" * 10)
        draft.commit("orphan")
    grow_old(models.path("orphan"))
    async with people.client(aggregator.app, people.certificate("site_admin")) as admin:
        for dry_run, names in ((True, ["orphan"]), (False, [])):
            asked = canonical_bytes({"dry_run": dry_run})
            told = (await admin.post("/v1/collect", content=asked)).json()
            assert told == {
                "dry_run": dry_run, "blobs": 1, "bytes": 10, "names": ["models/orphan"], "missing": []
            }  # fmt: skip
            assert models.names() == names
    async with people.client(aggregator.app, people.certificate("auditor")) as auditor:
        assert (await auditor.post("/v1/collect", content=canonical_bytes({}))).status_code == 403
    aggregator.state.store.close()
