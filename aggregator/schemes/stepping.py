"""One signed step of a scheme with one server: open it on the desk, believe each silo's, close it in time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from aggregator.schemes.flow import wait_until
from aggregator.state import AggregatorState, OpenRound
from privacy.errors import NotAllowed, Unprocessable
from privacy.ids import SiloId
from privacy.wire.envelope import Envelope

V = TypeVar("V")
Judge = Callable[[SiloId, Sequence[Envelope]], Awaitable[V]]
Inboxes = Mapping[SiloId, Sequence[Envelope]]
_log = logging.getLogger("sealsum.aggregator")


async def collect(
    state: AggregatorState,
    current: OpenRound,
    step: str,
    inboxes: Inboxes,
    judge: Judge[V],
    over: Callable[[], bool] = lambda: False,
) -> dict[SiloId, V]:
    """What was believed of a step: once all have answered who can, its time is up, or it is ``over``."""
    believed: dict[SiloId, V] = {}
    desk, answers = current.desk, current.round.answers

    async def accept(silo: SiloId, messages: Sequence[Envelope]) -> None:
        believed[silo] = await judge(silo, messages)

    def settled() -> bool:
        return over() or all(
            silo in desk.answered(step) or answers.get(silo) == "refusal" for silo in desk.expected(step)
        )

    desk.open(step, inboxes, accept)
    state.bell.ring()
    if not await desk.take_up(step):
        await wait_until(state, current, settled)
    came = desk.close(step)
    gone = sorted(set(inboxes) - set(came))
    _log.info("step_closed", extra={"context": current.ctx, "step": step, "dropped_out": gone})
    return {silo: believed[silo] for silo in came}


def only_own(step: str, silo: SiloId, messages: Sequence[Envelope]) -> None:
    """A silo brings its own messages only: another's, replayed in its place, would count as a second one.

    Raises:
        NotAllowed: one is somebody else's.
    """
    if any(message.sender != silo for message in messages):
        raise NotAllowed(f"{step} of silo {silo}: expected its own messages only")


def one(step: str, silo: SiloId, messages: Sequence[Envelope]) -> Envelope:
    """The one message of a silo in a step.

    Raises:
        NotAllowed: it is somebody else's. Unprocessable: none, or several.
    """
    only_own(step, silo, messages)
    if len(messages) != 1:
        raise Unprocessable(f"{step} of silo {silo}: expected one message, got {len(messages)}")
    return messages[0]
