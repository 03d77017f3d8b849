"""A log's entries as sinks ask for them: the newest from memory, older ones from where the log lies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from policies.audit_sinks.entry import Entry
from privacy.errors import LedgerDamaged
from privacy.transparency.checkpoint import LogHead
from privacy.transparency.leaf import Record, parse_record

RECENT: Final = 512
"""Entries kept in memory, some 4 KiB each; a sink that is further behind has them read from the log."""
BATCH: Final = 256
"""Entries handed to a sink at once."""


class Feed:
    """One log's. Its owner says ``grown``; any thread reads.

    Nothing waits here to be delivered: the log itself is the queue, and a sink only has a place in it.
    """

    def __init__(
        self,
        origin: str,
        size: int,
        head: Callable[[], LogHead],
        stored: Callable[[int, int], Sequence[bytes]],
    ) -> None:
        """``size``: entries there are; ``stored``: lines from a number on, at most so many, from the log."""
        self.origin = origin
        self._head = head
        self._stored = stored
        self._recent: deque[Record] = deque(maxlen=RECENT)
        self._size = size
        self._watchers: list[Callable[[Sequence[Record]], None]] = []
        self.changed = threading.Condition()
        """Notified when the log has grown, and when a sink has moved on."""

    @property
    def size(self) -> int:
        """How many entries there are."""
        return self._size

    def grown(self, records: Sequence[Record]) -> None:
        """These entries are on disk, and follow those before."""
        with self.changed:
            self._recent.extend(records)
            self._size = records[-1].seq + 1
            self.changed.notify_all()
        for watch in self._watchers:
            watch(records)

    def watch(self, watcher: Callable[[Sequence[Record]], None]) -> None:
        """Call this with entries as they come, in the owner's thread; it may not fail nor wait."""
        self._watchers.append(watcher)

    def read(self, first: int) -> list[Entry]:
        """The next entries from ``first`` on, at most ``BATCH``; none where there are none.

        Raises:
            LedgerDamaged: the log does not give them. Whatever else reading it raises.
        """
        with self.changed:
            size = self._size
            recent = list(self._recent) if self._recent and self._recent[0].seq <= first else None
        if first >= size:
            return []
        if recent is not None:
            start = first - recent[0].seq
            records = recent[start : start + BATCH]
        else:
            records = [parse_record(line) for line in self._stored(first, min(BATCH, size - first))]
        for place, record in enumerate(records, first):
            if record.seq != place:
                raise LedgerDamaged(f"log {self.origin}: expected entry {place}, got entry {record.seq}")
        head = self._head()
        return [Entry(self.origin, record, head) for record in records]
