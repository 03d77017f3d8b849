"""Peers that send slowly, heads without end, crowds: connections end by a deadline, and others are served.

Deadlines are made short here instead of waited for; asserted is that an end comes, not when.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn import Config

from aggregator import web_pace
from aggregator.web_body import read_body
from aggregator.web_crowd import Crowd, open_files_allowed
from aggregator.web_errors import install_problems
from aggregator.web_server import DrainingServer, TlsHttpProtocol, bind
from tests.access_world import AccessWorld
from tests.aggregator_world import on_loop

END_S = 60
"""How long an end may take to come: a timeout, as machines are busy."""


def plain_app() -> Starlette:
    """One route that reads a body, with our problems."""

    async def take(request: Request) -> Response:
        return Response(str(len(await read_body(request, 1 << 20))))

    app = Starlette(routes=[Route("/", take, methods=["GET", "POST"])])
    install_problems(app)  # type: ignore[arg-type]  # FastAPI's handlers are Starlette's
    return app


@asynccontextmanager
async def served(app: ASGIApp, most: int = 4096) -> AsyncIterator[tuple[str, int]]:
    """A real server on a free port, without TLS."""
    listener = bind(("127.0.0.1", 0))
    crowd = Crowd(app, most, lambda: len(server.server_state.connections))
    config = Config(
        crowd,
        http=TlsHttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=int(web_pace.IDLE_S),
        timeout_graceful_shutdown=1,
    )
    server = DrainingServer(config, lambda: None, lambda: None)
    running = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[:2]
    finally:
        server.should_exit = True
        await asyncio.wait_for(running, END_S)


async def to_the_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes."""
    try:
        return await asyncio.wait_for(reader.read(), END_S)
    except ConnectionResetError:
        return b""


def problem_of(raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """The problem document of a raw answer, and its headers."""
    head, _, body = raw.partition(b"\r\n\r\n")
    pairs = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    headers = {name.lower(): value for name, value in pairs}
    problem: dict[str, Any] = json.loads(body)
    assert headers["x-request-id"] == problem["request_id"]
    assert problem["request_id"]
    return problem, headers


def assert_refused(
    raw: bytes, caplog: pytest.LogCaptureFixture, status: int, kind: str, all_was_read: bool
) -> None:
    """It is in the log; and in the answer, which a reset may overtake where bytes were still coming."""
    logged = [vars(record) for record in caplog.records if record.getMessage() == "request_refused"]
    assert (logged[0]["status"], logged[0]["kind"]) == (status, kind)
    # What was taking the body learns that its caller is gone.
    told = {(entry["status"], entry["kind"], entry["request_id"]) for entry in logged[1:]}
    assert told <= {(400, "disconnected", logged[0]["request_id"])}
    if raw or all_was_read:
        problem, _ = problem_of(raw)
        assert (problem["status"], problem["type"]) == (status, f"urn:sealsum:{kind}")
        assert problem["request_id"] == logged[0]["request_id"]


async def dribble(writer: asyncio.StreamWriter, drop: bytes) -> None:
    """Send a little again and again, until the other end has had enough."""
    try:
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.02)
    except ConnectionError:
        return


@pytest.mark.parametrize(
    ("start", "drop", "status"),
    [
        (b"", b"\r\n", None),
        (b"GET / HTTP/1.1\r\nhost: x\r\n", b"", 408),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-a: ", b"a", 408),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n", b"", 408),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n", b"a", 408),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n", 408),
    ],
    ids=["empty lines", "half a head", "a head by bytes", "no body", "a body by bytes", "chunks by bytes"],
)
@on_loop
async def test_a_peer_that_dribbles_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    start: bytes,
    drop: bytes,
    status: int | None,
) -> None:
    for name in ("IDLE_S", "HEAD_S", "WINDOW_S"):
        monkeypatch.setattr(web_pace, name, 0.2)
    async with served(plain_app()) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(start)
        dribbling = asyncio.create_task(dribble(writer, drop))
        raw = await to_the_end(reader)
        dribbling.cancel()
        writer.close()
        if status is None:
            assert raw == b""
        else:
            assert_refused(raw, caplog, status, "too-slow", all_was_read=not drop)


@on_loop
async def test_a_body_that_keeps_coming_may_take_many_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_pace, "WINDOW_S", 0.3)
    async with served(plain_app()) as address:
        reader, writer = await asyncio.open_connection(*address)
        pieces, piece = 24, b"a" * 8192
        length = pieces * len(piece)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length)
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), END_S)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await asyncio.wait_for(reader.readexactly(len(str(length))), END_S) == str(length).encode()
        writer.close()


@pytest.mark.parametrize("pieces", [1, 100])
@pytest.mark.parametrize("head", [b"GET /%s HTTP/1.1\r\nhost: x\r\n", b"GET / HTTP/1.1\r\nx-a: %s"])
@on_loop
async def test_a_head_without_end_is_refused(
    caplog: pytest.LogCaptureFixture, head: bytes, pieces: int
) -> None:
    raw = head % (b"a" * web_pace.HEAD_BYTES_MAX)
    async with served(plain_app()) as address:
        reader, writer = await asyncio.open_connection(*address)
        size = -(-len(raw) // pieces)
        for start in range(0, len(raw), size):
            writer.write(raw[start : start + size])
            await asyncio.sleep(0)
        assert_refused(await to_the_end(reader), caplog, 431, "too-large", all_was_read=False)
        writer.close()


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\x00\xa5\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: 9x\r\n\r\n"]
)
@on_loop
async def test_what_is_no_http_is_refused_under_a_request_id(raw: bytes) -> None:
    async with served(plain_app()) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(raw)
        problem, headers = problem_of(await to_the_end(reader))
        assert (problem["status"], headers["connection"]) == (400, "close")
        writer.close()


@on_loop
async def test_a_caller_that_breaks_off_in_its_body_is_no_failure_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(plain_app()) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nabc")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
    told = [(record.getMessage(), getattr(record, "kind", "")) for record in caplog.records]
    assert ("request_refused", "disconnected") in told
    assert "request_failed" not in [event for event, _ in told]


@on_loop
async def test_the_aggregator_answers_beside_a_thousand_idle_connections(tmp_path: Path) -> None:
    aggregator = AccessWorld(tmp_path).aggregator()
    async with served(aggregator.app) as address:
        idle = [await asyncio.open_connection(*address) for _ in range(1000)]
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), END_S)
        assert answer.startswith(b"HTTP/1.1 200 ")
        for _, one in [*idle, (reader, writer)]:
            one.close()
    aggregator.state.store.close()


@on_loop
async def test_beyond_its_most_connections_a_server_asks_to_come_later() -> None:
    async with served(plain_app(), most=2) as address:
        idle = [await asyncio.open_connection(*address) for _ in range(2)]
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        problem, _ = problem_of(await to_the_end(reader))
        assert (problem["status"], problem["type"]) == (503, "urn:sealsum:not-now")
        for _, one in [*idle, (reader, writer)]:
            one.close()


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ((1024, 524288), (4608, 524288)),
        ((1024, 2048), (2048, 2048)),
        ((20000, 20000), None),
        ((-1, -1), None),
    ],
)
def test_open_files_are_allowed_as_far_as_the_hard_limit_goes(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: tuple[int, int] | None
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: set_to.append(given))
    open_files_allowed(4096)
    assert set_to == ([] if wanted is None else [wanted])
