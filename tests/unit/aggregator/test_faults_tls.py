"""Over TLS, through the server that production runs: slow strangers are let go, crowds hold up nobody."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from aggregator import web_pace
from aggregator.assembly import Aggregator
from aggregator.web_server import DrainingServer, bind, serve
from privacy.keystore import Identity
from tests.access_world import AccessWorld
from tests.aggregator_world import on_loop

END_S = 60
"""How long an end may take to come: a timeout, as machines are busy."""
READY = b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def served(app: ASGIApp, identity: Identity) -> AsyncIterator[tuple[str, int]]:
    """The production server on a free port, under the aggregator's certificate."""
    listener = bind(("127.0.0.1", 0))
    started: asyncio.Future[DrainingServer] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        serve(
            app,
            identity.server_context,
            listener,
            drain_s=1,
            on_drain=lambda: None,
            on_ready=started.set_result,
        )
    )
    server = await started
    try:
        yield listener.getsockname()[:2]
    finally:
        server.should_exit = True
        await asyncio.wait_for(running, END_S)


def parties(root: Path) -> tuple[Aggregator, Identity, Identity]:
    """An aggregator, who it is under TLS, and a silo of its federation."""
    world = AccessWorld(root)
    federation = world.world.federation
    return (
        world.aggregator(),
        federation.identity("aggregator", root / "served-as"),
        federation.identity("silo-1", root / "silo-1"),
    )


async def is_served(address: tuple[str, int], context: ssl.SSLContext) -> None:
    """One more caller gets its answer."""
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection(*address, ssl=context, server_hostname="localhost"), END_S
    )
    writer.write(READY)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), END_S)
    assert answer.startswith(b"HTTP/1.1 200 ")
    writer.transport.abort()


def hello_of(context: ssl.SSLContext) -> bytes:
    """The first bytes of an honest handshake."""
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def trickle(writer: asyncio.StreamWriter, raw: bytes) -> None:
    """A byte at a time, never the last one."""
    try:
        for one in raw[:-1]:
            writer.write(bytes([one]))
            await writer.drain()
            await asyncio.sleep(0.02)
        await asyncio.Event().wait()
    except ConnectionError:
        return


async def until_let_go(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes."""
    try:
        return await asyncio.wait_for(reader.read(), END_S)
    except (ConnectionError, ssl.SSLError):
        return b""


@on_loop
async def test_a_handshake_that_trickles_is_let_go_and_others_are_served_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline is the loop's, 60 s; here it is made short."""
    aggregator, identity, silo = parties(tmp_path)
    async with served(aggregator.app, identity) as address:
        with monkeypatch.context() as short:
            short.setattr("asyncio.constants.SSL_HANDSHAKE_TIMEOUT", 0.5)
            reader, writer = await asyncio.open_connection(*address)
            await asyncio.sleep(0.1)  # until the server has taken it
        trickling = asyncio.create_task(trickle(writer, hello_of(silo.client_context)))
        await is_served(address, silo.client_context)
        assert await until_let_go(reader) == b""
        trickling.cancel()
        writer.close()
    aggregator.state.store.close()


@on_loop
async def test_a_head_that_trickles_after_the_handshake_is_let_go_and_others_are_served_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_pace, "HEAD_S", 0.5)
    aggregator, identity, silo = parties(tmp_path)
    async with served(aggregator.app, identity) as address:
        reader, writer = await asyncio.open_connection(
            *address, ssl=silo.client_context, server_hostname="localhost"
        )
        trickling = asyncio.create_task(trickle(writer, b"GET / HTTP/1.1\r\nx-a: " + b"a" * 60_000))
        await is_served(address, silo.client_context)
        raw = await until_let_go(reader)
        assert not raw or raw.startswith(b"HTTP/1.1 408 ")
        trickling.cancel()
        writer.transport.abort()
    aggregator.state.store.close()


@pytest.mark.slow
@on_loop
async def test_a_silo_is_answered_beside_a_thousand_idle_tls_connections(tmp_path: Path) -> None:
    """Half of them said hello and then nothing more; half are through their handshake and ask nothing."""
    aggregator, identity, silo = parties(tmp_path)
    context, hello = silo.client_context, hello_of(silo.client_context)
    async with served(aggregator.app, identity) as address:
        idle = []
        for _ in range(500):
            _, half = await asyncio.open_connection(*address)
            half.write(hello)
            _, through = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
            idle += [half, through]
        await is_served(address, context)
        for one in idle:
            one.transport.abort()
    aggregator.state.store.close()
