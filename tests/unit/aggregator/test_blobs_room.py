"""A disk without room, and quotas: 507, nothing half-written, and the retry succeeds once there is room."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aggregator.blobs import Directory, sha256_of
from aggregator.health import ServerHealth
from aggregator.meters import ServerMeters
from aggregator.not_now import QuotaReached, StorageFull
from aggregator.quota import Limits, Quota
from aggregator.settings import ShareServerSettings
from aggregator.stores import Stores
from policies.health.settings import STATE_FREE_BYTES
from privacy.canonical import sha256_hex
from privacy.errors import ConfigurationError, Unprocessable
from privacy.update import digest_under
from tests.aggregator_world import World, client_of, on_loop
from tests.unit.aggregator.test_blobs_orphans import ARCHITECTURE

LONG = bytes(1 << 18)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The kernel itself refuses a longer file (EFBIG), as a full disk does (ENOSPC)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def body(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@on_loop
async def test_what_the_disk_has_no_room_for_leaves_nothing_behind(tmp_path: Path) -> None:
    files = Directory(tmp_path)
    call: tuple[Any, ...] = (sha256_hex(LONG), sha256_of, "ctx", "silo", "0")
    with files_up_to(100_000), pytest.raises(StorageFull, match="got none on this server's disk"):
        await files.receive(body(LONG[:90_000], LONG[90_000:]), *call, limit=len(LONG))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert await files.receive(body(LONG), *call, limit=len(LONG))


@on_loop
async def test_a_full_disk_is_a_507_that_says_when_to_ask_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    client = client_of(aggregator.app, world.federation.certificate_der("researcher"))
    path, under = f"/v1/models/{digest_under(ARCHITECTURE, [LONG])}", {"architecture": ARCHITECTURE}
    with files_up_to(100_000):
        refused = await client.put(path, params=under, content=LONG)
    assert (refused.status_code, refused.headers["retry-after"]) == (507, "5")
    assert refused.json()["type"] == "urn:sealsum:storage-full"
    assert str(tmp_path) not in refused.text
    assert aggregator.state.models.names() == []
    assert (await client.put(path, params=under, content=LONG)).status_code == 201
    rest = await client.get(path, headers={"Range": "bytes=200000-"})
    assert (rest.status_code, len(rest.content)) == (206, len(LONG) - 200_000)
    stale = await client.get(path, headers={"Range": "bytes=200000-", "If-Range": '"other"'})
    assert (stale.status_code, stale.content) == (200, LONG)
    assert (await client.get(path, headers={"Range": f"bytes={len(LONG)}-"})).status_code == 416


@on_loop
async def test_a_silo_has_its_share_of_the_room_and_a_refused_part_counts_no_more(tmp_path: Path) -> None:
    files = Directory(tmp_path)
    files.quota = quota = Quota(Limits(silo_bytes=8, silo_parts=2, all_bytes=12))

    async def put(silo: str, index: str, raw: bytes = b"four") -> bool:
        return await files.receive(body(raw), sha256_hex(b"four"), sha256_of, "ctx", silo, index, limit=4)

    with pytest.raises(Unprocessable, match="digest"):
        await put("a", "0", b"fuor")
    assert await put("a", "0")
    assert await put("a", "1")
    assert not await put("a", "1")  # again is no more
    with pytest.raises(QuotaReached, match="silo_bytes_max: expected at most 8 bytes of a here"):
        await put("a", "2")
    assert await put("b", "0")
    with pytest.raises(QuotaReached, match="storage_bytes_max: expected at most 12"):
        await put("b", "1")
    quota.limits = Limits(silo_bytes=None, silo_parts=2, all_bytes=100)
    with pytest.raises(QuotaReached, match="silo_parts_max: expected at most 2 parts of a here"):
        await put("a", "2")
    assert (quota.held_bytes, quota.held_parts) == (12, 3)
    files.scrub("ctx")
    assert (quota.held_bytes, quota.held_parts) == (0, 0)
    assert await put("a", "2")


def test_after_a_restart_what_is_here_counts_against_the_quota(tmp_path: Path) -> None:
    with Directory(tmp_path / "parts").draft() as draft:
        draft.write(b"four")
        draft.commit("ctx", "silo", "0")
    stores = Stores(ShareServerSettings(state_dir=tmp_path, listen="127.0.0.1:0", silo_bytes_max=1024))
    stores.open("parts")
    assert stores.quota is not None
    assert (stores.quota.held_bytes, stores.quota.held_parts) == (4, 1)


def test_a_server_with_little_room_left_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    server = world.servers["server-0"]
    settings = ShareServerSettings(state_dir=tmp_path / "server-0", listen="127.0.0.1:0")
    meters = ServerMeters("share_server", settings.state_dir)
    health = ServerHealth(settings, meters, server.store, lambda: server.charters.charter)
    (room,) = [check for check in health.checks() if check.name == "state_dir"]
    assert "MiB free" in room.look()
    monkeypatch.setattr("policies.health.checks.free_bytes", lambda _: STATE_FREE_BYTES - 1)
    with pytest.raises(ConfigurationError, match="256 MiB"):
        room.look()
