"""Many connections at once: files enough for them, and beyond that a refusal in form instead of a stall."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.request_ids import new_request_id
from aggregator.web_errors import problem

_OTHER_FILES: Final = 512
"""Databases, parts, logs and our own calls to peers."""
_log = logging.getLogger("sealsum.web")


def open_files_allowed(connections: int) -> None:
    """Raise this process's soft limit of open files, as far as its hard limit allows.

    The usual soft limit is 1,024: with as many idle connections a server could not accept, nor open a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        _log.warning("few_open_files", extra={"limit": most, "wanted": wanted})


class Crowd:
    """ASGI middleware outside everything else: beyond ``most`` connections, come again later."""

    def __init__(self, app: ASGIApp, most: int, connections: Callable[[], int]) -> None:
        self._app = app
        self._most = most
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if there is room."""
        if scope["type"] != "http" or self._connections() <= self._most:
            await self._app(scope, receive, send)
            return
        request_id = new_request_id()
        _log.warning("too_many_connections", extra={"request_id": request_id, "most": self._most})
        told = f"connections: expected at most {self._most} at once; come again later"
        answer = problem(503, "not-now", "not now", told, request_id)
        answer.headers["connection"] = "close"
        await answer(scope, receive, send)
