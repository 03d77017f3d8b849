"""The browser's way back: one answer on a free port of this machine's loopback (RFC 8252, section 7.3)."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from sealsum.login.oauth import LoginRefused

PATH: Final = "/callback"
_PAGE: Final = (
    b"<!doctype html><meta charset=utf-8><title>Sealsum</title>"
    b"<p>Sealsum has its answer. You may close this page and go back to the terminal.</p>"
)


class Loopback:
    """Listens on 127.0.0.1 until one request to ``/callback`` has come."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)

    @property
    def redirect_uri(self) -> str:
        """What the issuer sends the browser back to."""
        return f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def wait(self, seconds: float) -> dict[str, str]:
        """The query of the browser's answer.

        Raises:
            LoginRefused: none came in time.
        """
        until = time.monotonic() + seconds
        while self._server.answer is None:
            left = until - time.monotonic()
            if left <= 0:
                raise LoginRefused("login: the browser did not come back in time; try --device")
            self._server.timeout = left
            self._server.handle_request()
        return self._server.answer

    def close(self) -> None:
        """Stop listening."""
        self._server.server_close()


class _Server(HTTPServer):
    answer: dict[str, str] | None = None


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5  # seconds for whoever connects and says nothing

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path != PATH or self.server.answer is not None:
            self.send_error(404)
            return
        self.server.answer = dict(parse_qsl(address.query))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(_PAGE)))
        self.send_header("Referrer-Policy", "no-referrer")  # the code is in this page's address
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nothing: the address holds the code."""
