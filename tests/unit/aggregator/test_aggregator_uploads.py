"""Files and steps at the aggregator: for the round that is open and for those who are in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aggregator.blob_store import Blob
from aggregator.blobs import Directory
from aggregator.desk import Desk
from aggregator.presence import Bell, Presence
from aggregator.uploads import Uploads
from privacy.canonical import sha256_hex
from privacy.errors import NotAllowed, OutOfOrder
from privacy.ids import Context, Digest, PartyId, SiloId
from tests.aggregator_world import on_loop
from tests.pairwise_world import files_under

CTX = Context(Digest("11" * 32))
SILO, STRANGER = SiloId(PartyId("silo-1")), SiloId(PartyId("silo-9"))
PART = b"abcd"


class Takes:
    """A scheme that takes and gives any file."""

    def upload_size(self, *_: object) -> int:
        return len(PART)

    def download(self, current: Any, silo: SiloId, name: str, index: int) -> Blob:
        return Blob(Directory(Path(__file__).parent), (Path(__file__).name,))


def uploads(tmp_path: Path) -> tuple[Uploads, Any]:
    bell = Bell()
    current = SimpleNamespace(
        ctx=CTX,
        round=SimpleNamespace(plan=SimpleNamespace(silos=(SILO,), scheme="pairwise")),
        desk=Desk(("keys",)),
    )
    state = SimpleNamespace(
        current=current,
        parts=Directory(tmp_path),
        coming_back=set(),
        bell=bell,
        presence=Presence(1.0, bell, asyncio.get_running_loop().time),
    )
    return Uploads(cast("Any", state), cast("Any", {"pairwise": Takes()})), state


async def whole() -> AsyncIterator[bytes]:
    yield PART


@on_loop
async def test_a_file_that_arrives_while_its_round_ends_is_not_left_behind(tmp_path: Path) -> None:
    desk, state = uploads(tmp_path)

    async def slow() -> AsyncIterator[bytes]:
        yield PART[:2]
        state.current = None
        state.parts.scrub(CTX)
        yield PART[2:]

    with pytest.raises(OutOfOrder, match="it ended while this file arrived"):
        await desk.receive(CTX, SILO, "parts", 0, sha256_hex(PART), slow())
    assert list(files_under(tmp_path)) == []


@on_loop
async def test_an_answer_is_expected_from_those_who_are_asked_once_they_are(tmp_path: Path) -> None:
    desk, state = uploads(tmp_path)
    with pytest.raises(OutOfOrder, match="step keys: it has not begun"):
        desk.expect(CTX, SILO, "keys")
    state.current.desk.open("keys", {SILO: ()}, cast("Any", None))
    desk.expect(CTX, SILO, "keys")
    with pytest.raises(NotAllowed):
        desk.expect(CTX, STRANGER, "keys")


Call = Callable[[Uploads, Context, SiloId], Awaitable[object]]
CALLS: dict[str, Call] = {
    "put": lambda desk, ctx, silo: desk.receive(ctx, silo, "parts", 0, sha256_hex(PART), whole()),
    "get": lambda desk, ctx, silo: desk.fetch(ctx, silo, "parts", 0),
    "inbox": lambda desk, ctx, silo: desk.inbox(ctx, silo, "keys", 0),
    "answer": lambda desk, ctx, silo: desk.answer(ctx, silo, "keys", ()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@on_loop
async def test_a_silo_outside_the_cohort_or_of_another_round_gets_and_brings_nothing(
    tmp_path: Path, call: Call
) -> None:
    desk, _ = uploads(tmp_path)
    with pytest.raises(NotAllowed, match="cohort"):
        await call(desk, CTX, STRANGER)
    with pytest.raises(OutOfOrder, match="it is over"):
        await call(desk, Context(Digest("22" * 32)), SILO)
    assert list(files_under(tmp_path)) == []
