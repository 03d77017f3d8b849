"""The desk: steps in their order, a silo's messages once, nobody's inbox but one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aggregator.desk import Desk
from privacy.errors import Conflict, NotAllowed, NotFound, OutOfOrder, Unprocessable
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId, SiloId
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import SurvivorSet
from tests.aggregator_world import on_loop

A, B = SiloId(PartyId("silo-a")), SiloId(PartyId("silo-b"))
KEY = SigningKey.generate()


def message(text: str) -> Envelope:
    body = SurvivorSet(server="s", survivors=(text,), manifests=("00" * 32,))
    return sign_message(body, "survivors", Digest("11" * 32), PartyId("silo-a"), KEY)


async def believe(silo: SiloId, messages: Sequence[Envelope]) -> None:
    """Everything."""


@on_loop
async def test_steps_open_in_their_order_and_one_at_a_time() -> None:
    desk = Desk(("first", "second"))
    with pytest.raises(OutOfOrder, match="step second: it does not follow now"):
        desk.open("second", {A: ()}, believe)
    desk.open("first", {A: ()}, believe)
    with pytest.raises(OutOfOrder, match="does not follow"):
        desk.open("second", {A: ()}, believe)
    assert desk.close("first") == ()
    desk.open("second", {A: ()}, believe)
    assert (desk.is_open("first"), desk.is_open("second")) == (False, True)


@on_loop
async def test_an_inbox_is_one_silos_and_there_is_none_before_its_step() -> None:
    desk = Desk(("first", "second"))
    assert desk.inbox("first", A) is None
    desk.open("first", {A: (message("for-a"),)}, believe)
    assert desk.inbox("first", A) == (message("for-a"),)
    with pytest.raises(NotAllowed, match="it goes on without silo silo-b"):
        desk.inbox("first", B)
    with pytest.raises(NotFound, match="expected one of first, second"):
        desk.inbox("third", A)


@on_loop
async def test_messages_are_taken_once_while_their_step_is_open() -> None:
    desk = Desk(("first",))
    with pytest.raises(OutOfOrder, match="it has not begun"):
        await desk.receive("first", A, [message("one")])
    desk.open("first", {A: (), B: ()}, believe)
    assert await desk.receive("first", A, [message("one")])
    assert not await desk.receive("first", A, [message("one")])
    with pytest.raises(Conflict, match="other messages of silo silo-a came first"):
        await desk.receive("first", A, [message("two")])
    assert desk.answered("first") == {A}
    assert desk.close("first") == (A,)
    assert not await desk.receive("first", A, [message("one")]), "a lost answer is given again"
    with pytest.raises(OutOfOrder, match="silo silo-b came too late"):
        await desk.receive("first", B, [message("one")])
    assert (desk.went_on_without(A), desk.went_on_without(B)) == (False, True)


@on_loop
async def test_a_retry_waits_for_what_becomes_of_the_first_and_what_was_refused_may_be_mended() -> None:
    desk = Desk(("first",))
    looked_at, free = [], asyncio.Event()

    async def judge(silo: SiloId, messages: Sequence[Envelope]) -> None:
        looked_at.append(messages[0])
        await free.wait()
        if messages[0] == message("bad"):
            raise Unprocessable("bad")

    desk.open("first", {A: ()}, judge)
    calls = [
        asyncio.create_task(desk.receive("first", A, [message(text)])) for text in ("bad", "good", "good")
    ]
    await asyncio.sleep(0)
    free.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[0], Unprocessable)
    assert outcomes[1:] == [True, False]
    assert looked_at == [message("bad"), message("good")], "the same messages are judged once"


@on_loop
async def test_what_was_believed_after_its_step_closed_does_not_count() -> None:
    desk = Desk(("first",))
    free = asyncio.Event()

    async def judge(silo: SiloId, messages: Sequence[Envelope]) -> None:
        await free.wait()

    desk.open("first", {A: ()}, judge)
    late = asyncio.create_task(desk.receive("first", A, [message("one")]))
    await asyncio.sleep(0)
    assert desk.close("first") == ()
    free.set()
    with pytest.raises(OutOfOrder, match="it closed while"):
        await late
    assert desk.answered("first") == frozenset()
