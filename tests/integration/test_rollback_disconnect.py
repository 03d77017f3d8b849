"""Over a real socket: an agent killed in a long-poll is gone at once, so its restart need not wait."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from fastapi import Depends, FastAPI
from starlette.responses import Response

from aggregator.instances import Instances
from aggregator.web_errors import install_problems
from aggregator.web_instance import one_instance
from privacy.instance import HEADER, Instance
from tests.federation import Federation

FIRST = Instance("11" * 16)
FOLLOWING = Instance("22" * 16, previous=FIRST.id)
COPY = Instance("33" * 16, previous=FIRST.id)


class _AsSilo:
    """What the identity wall would have found out."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._member = Federation().charter.with_role("silo")[0]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["caller"] = self._member
        await self._app(scope, receive, send)


@pytest.fixture
def port() -> Iterator[int]:
    app = FastAPI()
    app.router.dependencies.append(Depends(one_instance(Instances(time.monotonic))))

    @app.get("/v1/offers")
    async def offers(wait_s: float = 0.0) -> Response:
        await asyncio.sleep(wait_s)
        return Response(status_code=204)

    install_problems(app)
    app.add_middleware(_AsSilo)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def _call(port: int, instance: Instance, wait_s: float = 0.0) -> socket.socket:
    raw = f"GET /v1/offers?wait_s={wait_s} HTTP/1.1\r\nHost: x\r\n{HEADER}: {instance}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(raw.encode())
    return connection


def _status(connection: socket.socket) -> int:
    with connection:
        return int(connection.recv(4096).split()[1])


def test_a_killed_agent_is_gone_with_its_connection_and_a_live_one_is_not(port: int) -> None:
    polling = _call(port, FIRST, wait_s=6.0)
    time.sleep(0.3)
    assert _status(_call(port, COPY)) == 409, "it is here as long as its connection is"
    polling.close()
    until = time.monotonic() + 4.0
    while (status := _status(_call(port, FOLLOWING))) == 409 and time.monotonic() < until:
        time.sleep(0.05)
    assert status == 204, "the restart is let in well before the poll would have ended"
    assert _status(_call(port, FIRST)) == 409
