"""When a server last answered this silo, by which clock, and who opened TLS on the way. Knows no messages."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True)
class LastAnswer:
    """The newest answer of any server."""

    at: datetime
    """By this machine's clock."""
    clock_offset_s: float | None
    """How far this machine's clock is ahead of the server's, to a second; ``None`` if it sent no time."""


class Contact:
    """One agent's. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last: LastAnswer | None = None
        self._heard_at: float | None = None

    @property
    def last(self) -> LastAnswer | None:
        """The newest answer; ``None`` before the first."""
        return self._last

    def seconds_since(self) -> float | None:
        """How long ago that was, by the monotonic clock."""
        heard_at = self._heard_at
        return None if heard_at is None else time.monotonic() - heard_at

    def heard(self, date: str | None) -> None:
        """A server answered, with this ``Date`` header."""
        now = datetime.now(UTC)
        with self._guard:
            self._last = LastAnswer(now, offset_of(date, now))
            self._heard_at = time.monotonic()


def offset_of(date: str | None, now: datetime) -> float | None:
    """How far ``now`` is ahead of an HTTP date (RFC 9110, section 5.6.7); ``None`` if it is none."""
    if date is None:
        return None
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return None
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=UTC)
    return (now - theirs).total_seconds()
