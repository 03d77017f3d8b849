"""uvicorn's HTTP protocol with deadlines: no peer holds a connection by sending slowly or without end.

A peer that sends a byte a minute costs itself nothing and us a connection (slow loris). A head has a deadline
as a whole. A body has none, as a hospital's line may need an hour for a large model: its bytes must keep
coming. Time in which we did not read is ours, not the peer's. Knows no TLS and no route.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aggregator.request_ids import new_request_id
from aggregator.web_errors import problem

IDLE_S: Final = 75.0
"""Before the first byte of a request; empty lines before it do not count as one."""
HEAD_S: Final = 30.0
"""From a request's first byte to the end of its headers."""
HEAD_BYTES_MAX: Final = 64 << 10
WINDOW_S: Final = 30.0
WINDOW_BYTES_MIN: Final = 4096
"""Of a body in each window: 137 bytes a second, below any line that could carry a round."""
SLOW_WINDOWS_MAX: Final = 2
"""In a row: one may have begun while we did not read."""
_log = logging.getLogger("sealsum.web")


class _HeadTooLarge(Exception):
    """The request line and the headers are over their limit."""


class PacedHttpProtocol(HttpToolsProtocol):
    """Lets go of peers that are too slow; answers what is no HTTP with a problem under a request id."""

    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0
    _window_bytes = 0
    _slow_windows = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Wait for a first request, for as long as for a next one."""
        super().connection_made(transport)
        self._arm(IDLE_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; count a head that has not ended yet, which the parser would gather without end."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._arm(HEAD_S, self._head_is_late)

    def on_url(self, url: bytes) -> None:
        """Part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there; from now on the body must keep coming."""
        self._in_head, self._window_bytes, self._slow_windows = False, 0, 0
        super().on_headers_complete()
        self._arm(WINDOW_S, self._judge_window)

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._window_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole: the rest is our time."""
        self._disarm()
        super().on_message_complete()
        if self.cycle.response_complete:  # it was refused early, and came to its end all the same
            self._arm(IDLE_S, self._idle_too_long)

    def on_response_complete(self) -> None:
        """Wait for a next request, if this one is whole."""
        super().on_response_complete()
        if self._timer is None and not self.transport.is_closing():
            self._arm(IDLE_S, self._idle_too_long)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or has a head that is too large."""
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            self._refuse(400, "malformed-message", "expected a request in HTTP/1.1")

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            raise _HeadTooLarge

    def _refuse_head(self) -> None:
        self._refuse(431, "too-large", f"head: expected at most {HEAD_BYTES_MAX} bytes")

    def _head_is_late(self) -> None:
        self._refuse(408, "too-slow", f"head: expected its end within {HEAD_S:g} s of its first byte")

    def _judge_window(self) -> None:
        slow = self._window_bytes < WINDOW_BYTES_MIN and not self.flow.read_paused
        self._slow_windows = self._slow_windows + 1 if slow else 0
        self._window_bytes = 0
        if self._slow_windows == SLOW_WINDOWS_MAX:
            told = f"body: expected at least {WINDOW_BYTES_MIN} bytes in {WINDOW_S:g} s"
            self._refuse(408, "too-slow", told)
        else:
            self._arm(WINDOW_S, self._judge_window)

    def _idle_too_long(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _refuse(self, status: int, kind: str, detail: str) -> None:
        """Answer, unless another answer is under way on this connection, and close it."""
        self._disarm()
        # A request whose body is late has its id already.
        known = "" if self._in_head or self.scope is None else self.scope["state"].get("request_id", "")
        request_id = str(known) or new_request_id()
        _log.warning("request_refused", extra={"request_id": request_id, "status": status, "kind": kind})
        idle = self.cycle is None or self.cycle.response_complete
        if idle or not (self._in_head or self.pipeline or self.cycle.response_started):
            self.transport.write(_as_http(problem(status, kind, kind.replace("-", " "), detail, request_id)))
            self.transport.close()
        else:
            self.transport.abort()

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _as_http(answer: Response) -> bytes:
    head = [b"HTTP/1.1 %d " % answer.status_code, *(b"%s: %s" % header for header in answer.raw_headers)]
    return b"\r\n".join([*head, b"connection: close", b"", bytes(answer.body)])
