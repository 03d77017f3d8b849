"""One live agent per silo: a second one under the same identity is refused by name, whichever came first.

It is for accidents: a cloned machine, an old one that was started again. With each call an agent names its
own start, drawn at random, and the start before it, as its state directory remembers. A machine that was
restarted follows itself at once; a copy that runs beside it does not. Whoever leaves the header out is not
counted: ledger heads (``ledger_heads``) bound what they can spend, not this. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from privacy.errors import SecondInstance
from privacy.ids import PartyId
from privacy.instance import Instance

GONE_S: Final = 30.0
"""So long after its last call an agent counts as gone; the longest long-poll of one is 20 s."""


@dataclass
class _Held:
    """Who speaks for a silo now."""

    instance: Instance
    since: datetime
    seen: float
    open: int = 0


class Instances:
    """The agent that speaks for each silo, for as long as this process runs."""

    def __init__(self, now: Callable[[], float], gone_s: float = GONE_S) -> None:
        """``now`` is a monotonic clock, in seconds."""
        self._now = now
        self._gone_s = gone_s
        self._held: dict[PartyId, _Held] = {}

    @contextmanager
    def call(self, silo: PartyId, instance: Instance) -> Iterator[Callable[[], None]]:
        """One call of an agent; what is yielded says that its connection is gone before the call has ended.

        Raises:
            SecondInstance: another agent speaks for this silo.
        """
        held = self._admit(silo, instance)
        held.open += 1
        here = True

        def gone() -> None:
            nonlocal here
            if here:
                here = False
                held.open -= 1

        held.seen = self._now()
        try:
            yield gone
        finally:
            if here:
                held.seen = self._now()
            gone()

    def _admit(self, silo: PartyId, instance: Instance) -> _Held:
        held = self._held.get(silo)
        if held is not None and held.instance.id == instance.id:
            return held
        if held is not None and self._is_live(held, instance):
            raise SecondInstance(
                f"instance: expected one agent of {silo}, got a second; one that is in use since "
                f"{held.since.isoformat(timespec='seconds')} was here {self._now() - held.seen:.0f} s ago. "
                "Stop one of the two, and see why there are two; a silo that moved may start "
                f"{self._gone_s:.0f} s after its other agent has ended"
            )
        self._held[silo] = _Held(instance, datetime.now(UTC), self._now())
        return self._held[silo]

    def _is_live(self, held: _Held, follower: Instance) -> bool:
        if held.open:
            return True
        return held.instance.id != follower.previous and self._now() - held.seen < self._gone_s
