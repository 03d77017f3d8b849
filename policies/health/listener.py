"""``/livez``, ``/readyz`` and ``/metrics`` by HTTP, in a thread of their own. Nothing about data.

Anybody who reaches the address may read it, which is why it is on loopback (``health.settings``). Checks are
looked at by one reader at a time, and readers are bounded (``health.bounds``): none holds up a round.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, Self
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from policies.health.bounds import BoundedHandler, BoundedServer
from policies.health.checks import Check, Seen, look_at
from policies.health.meters import Meters, Refresh
from policies.health.settings import HealthSettings
from privacy.errors import ConfigurationError

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
        self._looking = threading.Lock()
        try:
            self._server = BoundedServer(settings.address, handler)
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
        with self._looking:
            return self._look()

    def metrics(self) -> bytes:
        """The exposition, with gauges brought up to date."""
        with self._looking:
            self._look()
            self._meters.measure()
            self._refresh()
            return generate_latest(self._meters.registry)

    def _look(self) -> tuple[Seen, ...]:
        seen = look_at(self._checks)
        self._meters.saw(seen)
        return seen


class _Handler(BoundedHandler):
    health: ClassVar[HealthListener]

    def do_GET(self) -> None:  # noqa: N802 - the base class names it so
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
