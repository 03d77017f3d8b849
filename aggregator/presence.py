"""Waiting without polling: a bell that wakes waiters when something changed, and which silos are here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from privacy.ids import PartyId, SiloId

T = TypeVar("T")


class Bell:
    """Wakes everybody who waits for a condition over this process's state, on one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.silent = False
        """The process drains: nobody waits any more, and no round goes on collecting."""

    def ring(self) -> None:
        """Something changed: all conditions are looked at again."""
        self._event.set()
        self._event = asyncio.Event()

    def silence(self) -> None:
        """Begin to drain: whoever waits, now or later, is answered at once."""
        self.silent = True
        self.ring()

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        """The condition's value as soon as it has one; ``None`` when the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            value = condition()
            left = until - loop.time()
            if value is not None or left <= 0 or self.silent:
                return value
            # No await lies between looking and waiting, so that a ring in between cannot be missed.
            event = self._event
            try:
                # Not asyncio.wait_for, which in Python 3.11 can swallow a cancellation that meets a ring.
                async with asyncio.timeout(left):
                    await event.wait()
            except TimeoutError:
                return condition()


class Presence:
    """Which silos are here: one whose call is open, or was within the last ``seconds``. Monotonic clock."""

    def __init__(self, seconds: float, bell: Bell, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._bell = bell
        self._now = now
        self._open: Counter[PartyId] = Counter()
        self._seen: dict[PartyId, float] = {}

    @contextmanager
    def call(self, party: PartyId) -> Iterator[None]:
        """While the block runs, the party is here."""
        arrived = party not in self.here((party,))
        self._open[party] += 1
        if arrived:
            self._bell.ring()
        try:
            yield
        finally:
            self._open[party] -= 1
            self._seen[party] = self._now()

    @property
    def now(self) -> float:
        """This clock's time."""
        return self._now()

    def heard_since(self, silos: Collection[PartyId], moment: float) -> frozenset[SiloId]:
        """Those of ``silos`` of whom a call was open, or has ended, since then."""
        return frozenset(
            SiloId(silo)
            for silo in silos
            if self._open[silo] > 0 or self._seen.get(silo, float("-inf")) >= moment
        )

    def here(self, silos: Collection[PartyId]) -> frozenset[SiloId]:
        """Those of ``silos`` that are present now."""
        now = self._now()
        return frozenset(
            SiloId(silo)
            for silo in silos
            if self._open[silo] > 0 or now - self._seen.get(silo, float("-inf")) <= self._seconds
        )
