"""``/livez``, ``/readyz`` and ``/metrics`` by HTTP, in a thread of their own. Nothing about data.

Anybody who reaches the address may read it, which is why it is on loopback (``health.settings``). Answers
come one at a time and with short deadlines: a reader who stalls holds up other readers, never a round.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final, Self
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from policies.health.checks import Check, Seen, look_at
from policies.health.meters import Meters, Refresh
from policies.health.settings import HealthSettings
from privacy.errors import ConfigurationError

_TIMEOUT_S: Final = 5.0
_log = logging.getLogger(__name__)


class HealthListener:
    """One process's. Use it in a ``with`` block, or ``close`` it."""

    def __init__(
        self,
        settings: HealthSettings,
        meters: Meters,
        checks: Sequence[Check],
        refresh: Refresh,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """Listen from now on.

        Raises:
            ConfigurationError: the address cannot be had.
        """
        self._meters = meters
        self._checks = tuple(checks)
        self._refresh = refresh
        self._alive = alive
        handler = type("Handler", (_Handler,), {"health": self})
        family = socket.AF_INET6 if ":" in settings.address[0] else socket.AF_INET
        server = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
        try:
            self._server: ThreadingHTTPServer = server(settings.address, handler)
        except OSError as error:
            raise ConfigurationError(
                f"health.listen: {settings.listen}: {error.strerror}; choose another address"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()
        _log.info("health", extra={"url": self.url})

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def alive(self) -> bool:
        """Whether the process still does its work at all."""
        return self._alive()

    def look(self) -> tuple[Seen, ...]:
        """Look at every check; the gauges follow."""
        seen = look_at(self._checks)
        self._meters.saw(seen)
        return seen

    def metrics(self) -> bytes:
        """The exposition, with gauges brought up to date."""
        self.look()
        self._meters.measure()
        self._refresh()
        return generate_latest(self._meters.registry)


class _Handler(BaseHTTPRequestHandler):
    health: ClassVar[HealthListener]
    timeout = _TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "sealsum"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: probes come every few seconds."""

    def do_GET(self) -> None:
        """Answer one of the three."""
        address = urlsplit(self.path)
        match address.path:
            case "/livez":
                alive = self.health.alive()
                self._answer(200 if alive else 503, "text/plain", b"ok\n" if alive else b"stuck\n")
            case "/readyz":
                verbose = "verbose" in parse_qs(address.query, keep_blank_values=True)
                self._ready(self.health.look(), verbose)
            case "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, self.health.metrics())
            case _:
                self._answer(404, "text/plain", b"expected /livez, /readyz or /metrics\n")

    def _ready(self, seen: Sequence[Seen], verbose: bool) -> None:
        ready = all(one.ok for one in seen)
        document: dict[str, object] = {"status": "ready" if ready else "not ready"}
        shown = seen if verbose else [one for one in seen if not one.ok]
        if shown:
            document["checks"] = [{"check": one.name, "ok": one.ok, "said": one.said} for one in shown]
        self._answer(200 if ready else 503, "application/json", json.dumps(document).encode() + b"\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True
