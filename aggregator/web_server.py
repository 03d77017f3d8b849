"""Serving over mutual TLS: uvicorn, the client certificate in the ASGI TLS extension, a drain at SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config, Server

from aggregator.web_crowd import Crowd, open_files_allowed
from aggregator.web_pace import IDLE_S, PacedHttpProtocol
from privacy.errors import ConfigurationError

CONNECTIONS_MAX = 4096
_log = logging.getLogger("sealsum.web")


class TlsHttpProtocol(PacedHttpProtocol):
    """uvicorn's HTTP protocol, which also tells the application whose certificate the peer showed.

    uvicorn 0.54 drops it; we fill the part of the ASGI TLS extension that we need. The chain holds only
    what OpenSSL has verified against the federation's CA.
    """

    _tls: dict[object, object]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Take the verified certificate from the finished handshake."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        der = tls.getpeercert(binary_form=True) if tls is not None else None
        self._tls = {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(der)] if der else []}

    def shutdown(self) -> None:
        """Drop an idle connection without waiting for a TLS goodbye, which an idle client never says."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()

    def on_message_begin(self) -> None:
        """Put it into each request's scope."""
        super().on_message_begin()
        self.scope["extensions"] = {"tls": self._tls}


class DrainingServer(Server):
    """uvicorn's server, which says when it is ready and lets long-polls go before it waits for them."""

    def __init__(self, config: Config, on_ready: Callable[[], None], on_drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_drain = on_drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer who waits, then wait for what is in flight."""
        self._on_drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask for a drain; the process then ends by itself, with exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask_to_stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _ask_to_stop(self) -> None:
        self.should_exit = True


def bind(address: tuple[str, int]) -> socket.socket:
    """A listening socket, port 0 meaning a free one.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=1024)
    except OSError as error:
        raise ConfigurationError(f"listen: {address[0]}:{address[1]}: {error.strerror}") from error


def url_of(listener: socket.socket) -> str:
    """Where the socket listens, as a URL."""
    host, port = listener.getsockname()[:2]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


async def serve(
    app: ASGIApp,
    tls: ssl.SSLContext,
    listener: socket.socket,
    *,
    drain_s: float,
    on_drain: Callable[[], None],
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    on_ready: Callable[[DrainingServer], None] | None = None,
) -> None:
    """Serve until a signal asks to stop; ``beside`` runs along, and ends by itself when told to drain.

    If ``beside`` fails, the server stops too and the error is raised: a server whose work has stopped
    must not look alive.
    """
    url = url_of(listener)
    open_files_allowed(CONNECTIONS_MAX)
    crowd = Crowd(app, CONNECTIONS_MAX, lambda: len(server.server_state.connections))
    config = Config(
        crowd,
        http=TlsHttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=max(1, int(drain_s)),
        ssl_context_factory=lambda _config, _default: tls,
    )

    def ready() -> None:
        _log.info("listening", extra={"url": url})
        if on_ready is not None:
            on_ready(server)

    server = DrainingServer(config, ready, on_drain)
    serving = asyncio.create_task(server.serve([listener]))
    if beside is None:
        await serving
        return
    working = asyncio.create_task(beside())
    await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    await asyncio.wait({working}, timeout=drain_s)
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
