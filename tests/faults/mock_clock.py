"""An event loop whose clock jumps to the next timer when nothing else is to be done: seconds cost nothing.

Threads are waited for in real time before the clock jumps, so nobody is late because a machine is busy.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

REAL_S = 0.003
"""So long a thread that nobody has told us about may take to report."""


class _Jumping(selectors.DefaultSelector):
    """Where a loop would sleep, it looks once and then sets its clock forward."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        while self.threads:
            events = super().select(0.05)
            if events:
                return events
        events = super().select(min(timeout, REAL_S))
        if not events:
            self.passed += timeout
        return events


class MockClock(asyncio.SelectorEventLoop):
    """A loop by that clock."""

    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        """Seconds since the loop was made, by its own clock."""
        return self.jumping.passed

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """As every loop does; the clock stands until it is done."""
        self.jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._back)
        return future

    def _back(self, future: asyncio.Future[Any]) -> None:
        self.jumping.threads -= 1


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """``asyncio.run`` by a mock clock, which ``time.monotonic`` shows too."""
    with asyncio.Runner(loop_factory=MockClock) as runner, _monotonic(runner.get_loop()):
        return runner.run(main)


@contextmanager
def _monotonic(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    with mock.patch.object(time, "monotonic", loop.time):
        yield
