"""Where the silos of one open round leave a step's messages and fetch what the next step needs.

Schemes with one server go in steps: the desk hands each silo the *inbox* of the step that is open and takes
its messages once. What the messages mean, and who is expected, the scheme says when it opens the step.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from privacy.errors import Conflict, NotAllowed, NotFound, OutOfOrder
from privacy.ids import SiloId
from privacy.wire.envelope import Envelope

Accept = Callable[[SiloId, Sequence[Envelope]], Awaitable[None]]
"""Believes one silo's messages of a step, or raises; an error costs its sender only."""


Answers = Mapping[SiloId, tuple[Envelope, ...]]


class Journal(Protocol):
    """Where a desk notes what it has taken, before it says so."""

    def answered(self, step: str, silo: SiloId, messages: Sequence[Envelope]) -> None:
        """A silo's messages of a step were believed."""

    def closed(self, step: str) -> None:
        """A step takes no more messages."""


class InMemory:
    """A desk that is forgotten with its process."""

    def answered(self, step: str, silo: SiloId, messages: Sequence[Envelope]) -> None:
        """Nothing is noted."""

    def closed(self, step: str) -> None:
        """Nothing is noted."""


_NOTHING: Final[Mapping[str, Answers]] = MappingProxyType({})


@dataclass
class _Step:
    inboxes: Mapping[SiloId, Sequence[Envelope]]
    accept: Accept
    answers: dict[SiloId, tuple[Envelope, ...]] = field(default_factory=dict)
    turns: defaultdict[SiloId, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """A silo's messages are judged one after the other: a retry waits for what became of the first."""
    closed: bool = False
    settled: bool = False
    """It was closed before a restart: nobody who is not in ``answers`` comes in any more."""


class Desk:
    """The steps of one round, in the order of its scheme. All on one event loop."""

    def __init__(
        self,
        order: tuple[str, ...] = (),
        journal: Journal | None = None,
        kept: Mapping[str, Answers] = _NOTHING,
        closed: Collection[str] = (),
    ) -> None:
        """``order``: the names of the scheme's steps; none where silos deal with share servers.

        ``kept`` and ``closed``: what ``journal`` noted in this round before a restart.
        """
        self._order = order
        self._journal: Journal = journal or InMemory()
        self._kept = kept
        self._closed = closed
        self._steps: dict[str, _Step] = {}

    def open(self, step: str, inboxes: Mapping[SiloId, Sequence[Envelope]], accept: Accept) -> None:
        """Begin a step with exactly these silos; the one before it must be closed."""
        if step != self._order[len(self._steps)] or any(not one.closed for one in self._steps.values()):
            raise OutOfOrder(f"step {step}: it does not follow now")
        self._steps[step] = _Step(inboxes, accept, settled=step in self._closed)

    async def take_up(self, step: str) -> bool:
        """Believe again what came before a restart; whether the step was closed then, so that nobody is
        waited for: what was frozen once is what it was.

        Raises:
            PeerFault, PolicyRefusal: what was believed then is not any more.
        """
        known = self._steps[step]
        for silo, messages in self._kept.get(step, {}).items():
            async with known.turns[silo]:
                if silo not in known.answers:
                    await known.accept(silo, messages)
                    known.answers[silo] = messages
        return known.settled

    def close(self, step: str) -> tuple[SiloId, ...]:
        """Take no more messages of a step; whose came, sorted."""
        if not self._steps[step].settled:
            self._journal.closed(step)
        self._steps[step].closed = True
        return tuple(sorted(self._steps[step].answers))

    def is_open(self, step: str) -> bool:
        """Whether a step takes messages now."""
        return step in self._steps and not self._steps[step].closed

    def went_on_without(self, silo: SiloId) -> bool:
        """Whether a step has closed that this silo did not answer: it cannot join the round any more."""
        return any(one.closed and silo not in one.answers for one in self._steps.values())

    def answered(self, step: str) -> frozenset[SiloId]:
        """Whose messages of a step were believed so far."""
        return frozenset(self._steps[step].answers)

    def heard(self, silo: SiloId) -> bool:
        """Whether any message of this silo was believed in this round."""
        return any(silo in step.answers for step in self._steps.values())

    def expected(self, step: str) -> frozenset[SiloId]:
        """Who may answer a step."""
        return frozenset(self._steps[step].inboxes)

    def inbox(self, step: str, silo: SiloId) -> tuple[Envelope, ...] | None:
        """What a silo needs for a step; ``None`` while the step is not open.

        Raises:
            NotFound: this round has no such step. NotAllowed: the step went on without this silo.
        """
        known = self._step(step)
        if known is None:
            return None
        if silo not in known.inboxes:
            raise NotAllowed(f"step {step}: it goes on without silo {silo}, whose last message did not come")
        return tuple(known.inboxes[silo])

    async def receive(self, step: str, silo: SiloId, messages: Sequence[Envelope]) -> bool:
        """Take a silo's messages of a step, once; False if the very same ones came before. In this order:

        (1) the step has begun and expects this silo; (2) the very same messages are here already;
        (3) other ones are not; (4) the step is still open; (5) the scheme believes
        them; (6) it is open still, after all that took; (7) they are noted, so that no restart asks for them.

        Raises:
            OutOfOrder: (1), (4), (6). NotFound, NotAllowed: (1). Conflict: (3).
            PeerFault, PolicyRefusal: (5).
        """
        # (1)
        known = self._step(step)
        if known is None:
            raise OutOfOrder(f"step {step}: it has not begun")
        if silo not in known.inboxes:
            raise NotAllowed(f"step {step}: it is not for silo {silo}")
        async with known.turns[silo]:
            # (2), (3)
            # An answer may be no message at all: "here are my files" of threshold_*.
            before = known.answers.get(silo, self._kept.get(step, {}).get(silo))
            if before == tuple(messages):
                return False
            if before is not None:
                raise Conflict(f"step {step}: other messages of silo {silo} came first; those hold")
            # (4)
            if known.closed or known.settled:
                raise OutOfOrder(f"step {step}: it is closed; silo {silo} came too late")
            # (5)
            await known.accept(silo, messages)
            # (6)
            if known.closed:
                raise OutOfOrder(f"step {step}: it closed while silo {silo}'s messages were looked at")
            # (7)
            self._journal.answered(step, silo, messages)
            known.answers[silo] = tuple(messages)
        return True

    def _step(self, step: str) -> _Step | None:
        if step not in self._order:
            raise NotFound(
                f"step {step[:32]!r}: expected one of {', '.join(self._order) or 'no step at all'}"
            )
        return self._steps.get(step)
