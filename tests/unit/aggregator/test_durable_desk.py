"""What a desk has taken outlives its process; what could open something is never written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select

from aggregator.audit_log import AuditLog
from aggregator.desk import Desk
from aggregator.desk_rows import DeskJournal, KeptDesk, kept_desk
from aggregator.store import Store
from aggregator.tables import desk_answers
from privacy.canonical import sha256_hex
from privacy.errors import Conflict, OutOfOrder
from privacy.identity import SigningKey
from privacy.ids import Context, JobId, PartyId, SiloId
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import Refusal
from tests.aggregator_world import on_loop

CTX = Context(sha256_hex(b"a round"))
ONE, TWO = SiloId(PartyId("silo-1")), SiloId(PartyId("silo-2"))
KEY = SigningKey.generate()


def message(silo: SiloId, words: str = "-") -> Envelope:
    """Any signed message."""
    said = Refusal(silo=silo, rule="a.rule", sentence=words, expected="-", got="-", remedy="-")
    return sign_message(said, "refusal", CTX, silo, KEY)


def store_at(path: Path) -> Store:
    return Store(f"sqlite:///{path / 'server.db'}", AuditLog("fed", PartyId("a"), KEY), path, ())


def desk_of(store: Store, kept: KeptDesk | None = None) -> Desk:
    journal = DeskJournal(store, CTX, {"opens"})
    if kept is None:
        return Desk(("first", "opens"), journal)
    return Desk(("first", "opens"), journal, kept.answers, kept.closed)


class Believing:
    """A scheme that believes everything, and remembers whom."""

    def __init__(self) -> None:
        self.believed: list[SiloId] = []

    async def accept(self, silo: SiloId, messages: Sequence[Envelope]) -> None:
        self.believed.append(silo)


@on_loop
async def test_an_answer_that_was_taken_is_believed_again_after_a_restart_and_not_asked_for(
    tmp_path: Path,
) -> None:
    store = store_at(tmp_path)
    with store.write() as transaction:
        transaction.add_round(CTX, JobId("heart"), 1, "collecting")
    first = desk_of(store)
    first.open("first", {ONE: (), TWO: ()}, Believing().accept)
    assert await first.receive("first", ONE, [message(ONE)])
    with store.read() as view:
        kept = kept_desk(view, CTX)
    scheme, second = Believing(), desk_of(store, kept)
    second.open("first", {ONE: (), TWO: ()}, scheme.accept)
    # A retry, before or after it is taken up, is the same one again.
    assert not await second.receive("first", ONE, [message(ONE)])
    with pytest.raises(Conflict, match="came first"):
        await second.receive("first", ONE, [message(ONE, "other words")])
    assert not await second.take_up("first"), "the step was open"
    assert not await second.receive("first", ONE, [message(ONE)])
    assert await second.receive("first", TWO, [message(TWO)])
    assert (second.close("first"), scheme.believed) == ((ONE, TWO), [ONE, TWO])
    store.close()


@on_loop
async def test_a_step_that_was_closed_takes_nobody_else_after_a_restart(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with store.write() as transaction:
        transaction.add_round(CTX, JobId("heart"), 1, "collecting")
    first = desk_of(store)
    first.open("first", {ONE: (), TWO: ()}, Believing().accept)
    await first.receive("first", ONE, [message(ONE)])
    first.close("first")
    with store.read() as view:
        second = desk_of(store, kept_desk(view, CTX))
    second.open("first", {ONE: (), TWO: ()}, Believing().accept)
    with pytest.raises(OutOfOrder, match="it is closed; silo silo-2 came too late"):
        await second.receive("first", TWO, [message(TWO)])
    assert await second.take_up("first")
    assert second.close("first") == (ONE,), "who was frozen in it, and nobody else"
    store.close()


@on_loop
async def test_messages_of_a_step_that_opens_something_are_never_written(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with store.write() as transaction:
        transaction.add_round(CTX, JobId("heart"), 1, "collecting")
    desk = desk_of(store)
    desk.open("first", {}, Believing().accept)
    desk.close("first")
    desk.open("opens", {ONE: ()}, Believing().accept)
    assert await desk.receive("opens", ONE, [message(ONE, "a share of a mask")])
    desk.close("opens")
    with store.read() as view:
        assert view.connection.execute(select(desk_answers)).all() == []
        assert set(kept_desk(view, CTX).closed) == {"first"}
    store.close()
    assert b"a share of a mask" not in b"".join(path.read_bytes() for path in tmp_path.glob("server.db*"))


@on_loop
async def test_an_answer_of_no_message_counts_once_however_often_it_comes(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with store.write() as transaction:
        transaction.add_round(CTX, JobId("heart"), 1, "collecting")
    desk = desk_of(store)
    desk.open("first", {ONE: ()}, Believing().accept)
    assert await desk.receive("first", ONE, [])
    assert desk.close("first") == (ONE,)
    assert not await desk.receive("first", ONE, []), "its retry, as any other's, is no late answer"
    store.close()
