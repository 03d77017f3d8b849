"""One thread that carries a log's entries to one sink: in order, each at least once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity.wait import wait_exponential

from policies.audit_sinks.entry import Sink
from policies.audit_sinks.feed import Feed
from policies.audit_sinks.position import Position

KEEP_EVERY_S: Final = 1.0
"""The position is kept no more often: a crash repeats a second of entries at most."""
PAUSE_MAX_S: Final = 30.0
"""Longest pause between two tries of a sink that takes nothing."""
_log = logging.getLogger("sealsum.sinks")

Told = Callable[[str, str, str], None]
"""Kind of log entry (``sink_failed``, ``sink_recovered``), the sink's name, and why."""


class Delivery:
    """To one sink. A sink that failed is given everything again from the position that was kept last."""

    def __init__(self, name: str, sink: Sink, feed: Feed, position: Position, tell: Told) -> None:
        self.name = name
        self._sink = sink
        self._feed = feed
        self._position = position
        self._tell = tell
        self._next = position.next
        self._kept_at = 0.0
        self._failing = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def taken(self) -> int:
        """How many entries the sink has taken."""
        return self._next

    @property
    def failing(self) -> bool:
        """Whether its last try went wrong."""
        return self._failing

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"sink-{self.name}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Hand over what is left if the sink takes it at once, keep the position, let go."""
        with self._feed.changed:
            self._closing.set()
            self._feed.changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        tries = Retrying(
            retry=retry_if_exception_type(OSError),
            wait=wait_exponential(multiplier=0.1, max=PAUSE_MAX_S),
            stop=stop_when_event_set(self._closing),
            sleep=sleep_using_event(self._closing),
            before_sleep=self._failed,
            retry_error_callback=self._failed,
        )
        while not self._closing.is_set():
            tries(self._carry)
        if not self._failing:
            Retrying(stop=lambda _: True, retry_error_callback=self._failed)(self._carry)
        self._sink.close()

    def _carry(self) -> None:
        """Hand over until nothing is left, keep the position, and wait for more (a try of its own)."""
        while entries := self._feed.read(self._next):
            self._sink.send(entries)
            if self._failing:
                self._recovered()
            with self._feed.changed:
                self._next = entries[-1].record.seq + 1
                self._feed.changed.notify_all()
            if time.monotonic() - self._kept_at >= KEEP_EVERY_S:
                self._keep()
        with self._feed.changed:
            due = None if self._next == self._position.next else KEEP_EVERY_S
            if not self._closing.is_set() and self._feed.size == self._next:
                self._feed.changed.wait(due)
        if self._feed.size == self._next or self._closing.is_set():
            self._keep()

    def _keep(self) -> None:
        if self._next != self._position.next:
            self._sink.settle()
            self._position.keep(self._next)
        self._kept_at = time.monotonic()

    def _failed(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        reason = getattr(error, "strerror", None) or type(error).__name__
        self._sink.close()
        with self._feed.changed:
            self._next = min(self._next, self._position.next)
        if not self._failing:
            self._failing = True
            _log.warning("sink_failed", extra={"sink": self.name, "reason": reason})
            self._tell("sink_failed", self.name, reason)

    def _recovered(self) -> None:
        self._failing = False
        _log.info("sink_recovered", extra={"sink": self.name})
        self._tell("sink_recovered", self.name, "")
