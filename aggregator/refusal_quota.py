"""How many of a caller's refusals a log takes: a party that sends nonsense all day must not fill the disk.

A log's entries are forever and durable. Within an hour a caller's first refusals are entered one by one, the
rest as one count with the next hour's first: nothing is hidden, and growth is bounded by the roster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST: Final = 60
"""Entries of one caller in one span."""
SPAN_S: Final = 3600.0


@dataclass
class _Counted:
    since: float
    entered: int = 0
    left_out: int = 0


class RefusalQuota:
    """Counts by caller; callers are members of the charter and known people, so there are few."""

    def __init__(self, now: Callable[[], float], most: int = MOST, span_s: float = SPAN_S) -> None:
        """``now`` is a monotonic clock, in seconds."""
        self._now = now
        self._most = most
        self._span_s = span_s
        self._callers: dict[str, _Counted] = {}

    def take(self, caller: str) -> dict[str, int] | None:
        """Whether a refusal of this caller is entered: ``None`` if not, else what its entry says besides: how
        many were left out since the last one that was, if any."""
        now = self._now()
        counted = self._callers.setdefault(caller, _Counted(now))
        if now - counted.since >= self._span_s:
            counted.since, counted.entered = now, 0
        if counted.entered >= self._most:
            counted.left_out += 1
            return None
        counted.entered += 1
        left_out, counted.left_out = counted.left_out, 0
        return {"left_out": left_out} if left_out else {}
