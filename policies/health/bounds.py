"""An HTTP server of the standard library that no reader can hold up: few connections, short heads, deadlines.

The listener may be reachable by more than its own machine (``exposed``), and asks nobody who she is. Knows no
route.
"""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

CONNECTIONS_MAX: Final = 32
CONNECTIONS_OF_ONE_MAX: Final = 8
"""Of one address, so that a flood from one leaves room for others' probes."""
REQUEST_S: Final = 5.0
"""From the connection's begin to the end of its one request, and again for its answer."""
REQUEST_BYTES_MAX: Final = 16 << 10
_log = logging.getLogger(__name__)


class BoundedServer(ThreadingHTTPServer):
    """Answers each connection in a thread of its own, as far as there is room; others are closed at once."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: Counter[str] = Counter()
        self._counting = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection, or close it."""
        host = str(client_address[0])
        with self._counting:
            full = self._open.total() >= CONNECTIONS_MAX or self._open[host] >= CONNECTIONS_OF_ONE_MAX
            if not full:
                self._open[host] += 1
        if full:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(host)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer it, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(str(client_address[0]))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no event; anything else is a fault of ours."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("health_failed")

    def _leave(self, host: str) -> None:
        with self._counting:
            self._open[host] -= 1
            if self._open[host] <= 0:
                del self._open[host]


class BoundedHandler(BaseHTTPRequestHandler):
    """One request of one connection, within its deadline and its bytes."""

    timeout = REQUEST_S
    protocol_version = "HTTP/1.1"
    server_version = "sealsum"
    sys_version = ""

    def setup(self) -> None:
        """Read through the bounds. An answer has the socket's own timeout, which ``sendall`` takes whole."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Bounded(self.connection))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: probes come every few seconds."""


class _Bounded(io.RawIOBase):
    """What a connection sends; it ends when it has taken too long or sent too much."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + REQUEST_S
        self._left = REQUEST_BYTES_MAX

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes; 0 at the end.

        Raises:
            TimeoutError: the deadline has passed.
        """
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("request: it took too long")
        view = memoryview(buffer)[: self._left]
        if not view:
            return 0
        self._connection.settimeout(left_s)
        try:
            received = self._connection.recv_into(view)
        finally:
            self._connection.settimeout(REQUEST_S)
        self._left -= received
        return received
