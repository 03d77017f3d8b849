"""One id for each request: in the answer's ``x-request-id``, in problem documents and in the log."""

from __future__ import annotations

import os
import re
from typing import Final

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "x-request-id"
_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9._-]{8,64}")


class RequestIds:
    """ASGI middleware: each request gets an id; a caller's own if it sent one that is well formed.

    A proxy or an agent can so find its request in this server's log. What it sends ends in logs and headers,
    so it is one plain word; anything else is left aside, and the request gets an id of our making.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the request, then pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _sent(scope) or new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_named)


def new_request_id() -> str:
    """64 random bits, as hex."""
    return os.urandom(8).hex()


def request_id_of(request: Request) -> str:
    """The id that the middleware gave this request."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def _sent(scope: Scope) -> str:
    """The caller's id, or "" where it sent none, several, or one that is not well formed."""
    sent = [value for name, value in scope.get("headers", ()) if name == HEADER.encode()]
    return sent[0].decode() if len(sent) == 1 and _WELL_FORMED.fullmatch(sent[0]) else ""
