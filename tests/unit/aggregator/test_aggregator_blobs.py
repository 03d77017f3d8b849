"""A directory of a server: deleting what others write to and delete meanwhile."""

from __future__ import annotations

import errno
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aggregator.blobs import Directory, Draft, sha256_of
from privacy.canonical import sha256_hex
from privacy.errors import OutOfOrder
from tests.aggregator_world import on_loop


@pytest.mark.parametrize("meanwhile", [errno.ENOENT, errno.ENOTEMPTY])
def test_scrubbing_is_done_although_another_thread_deletes_or_adds_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: int
) -> None:
    directory, delete, calls = Directory(tmp_path / "parts"), shutil.rmtree, []
    file = directory.path("ctx", "silo-1", "00000")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"part")

    def raced(path: Path) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise OSError(meanwhile, "raced")
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", raced)
    directory.scrub("ctx")
    assert len(calls) == 2
    assert directory.names() == []


def test_scrubbing_what_may_not_be_deleted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(tmp_path / "parts")
    directory.path("ctx").mkdir()

    def forbidden(_path: Path) -> None:
        raise PermissionError(errno.EACCES, "not ours")

    monkeypatch.setattr(shutil, "rmtree", forbidden)
    with pytest.raises(PermissionError):
        directory.scrub("ctx")


@on_loop
async def test_a_file_that_is_scrubbed_while_it_comes_again_is_a_refusal_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, commit_new = Directory(tmp_path / "parts"), Draft.commit_new

    async def part() -> AsyncIterator[bytes]:
        yield b"part"

    async def receive() -> bool:
        return await directory.receive(part(), sha256_hex(b"part"), sha256_of, "ctx", "00000", limit=4)

    assert await receive()

    def then_scrubbed(draft: Draft, *segments: str) -> bool:
        new = commit_new(draft, *segments)
        directory.scrub("ctx")
        return new

    monkeypatch.setattr(Draft, "commit_new", then_scrubbed)
    with pytest.raises(OutOfOrder, match="it was deleted while these bytes came"):
        await receive()
