"""Standing by: a process that does not hold the lease hands each connection on to the one that does.

Bytes go through as they are, so TLS is between the caller and the holder, which has the same name and key:
nothing here is believed, and a standby needs no word about who called. Behind a balancer any process will do.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvloop

from aggregator.database import open_database
from aggregator.lease import Held, Holder, Lease, take
from aggregator.migrating import migrate
from aggregator.settings import AggregatorSettings

_CHUNK: Final = 1 << 16
_CONNECT_S: Final = 5.0
_LOOK_S: Final = 0.5
_PASSED_MAX: Final = 256
"""Connections at once, two descriptors each: whoever opens more must not keep this process from the database,
where it finds out that it is its turn."""
_log = logging.getLogger("sealsum.aggregator")


class Standby:
    """Hands connections on until the lease is this process's."""

    def __init__(self, lease: Lease, listener: socket.socket) -> None:
        self._lease = lease
        self._listener = listener
        self._holder: Holder | None = None
        self._passing: set[asyncio.Task[None]] = set()

    async def until_held(self, stopping: asyncio.Event) -> Held | None:
        """Hand connections on until the lease could be taken; ``None`` once asked to stop."""
        server = await asyncio.start_server(self._hand_on, sock=self._listener.dup())
        try:
            while not stopping.is_set():
                found = await asyncio.to_thread(take, self._lease)
                if isinstance(found, Held):
                    _log.info("lease_taken", extra={"token": found.token})
                    return found
                if found is not None and found != self._holder:
                    _log.info("standing_by", extra={"holder": found.address})
                    self._holder = found
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._lease.pause_s):
                        await stopping.wait()
            return None
        finally:
            server.close()
            for task in tuple(self._passing):
                task.cancel()
            await asyncio.gather(*self._passing, return_exceptions=True)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this in a task of its own
        if len(self._passing) >= _PASSED_MAX:
            writer.close()
            return
        self._passing.add(task)
        try:
            await self._pass_both_ways(reader, writer)
        except* (OSError, TimeoutError):
            pass  # either side is gone: the caller dials again
        finally:
            writer.close()
            self._passing.discard(task)

    async def _pass_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._holder is None or self._holder.address in ("", self._lease.address):
            # At our own address: an earlier process of this unit, killed before its lease ran out. Handing on
            # to it would be to ourselves, without end.
            return
        host, _, port = self._holder.address.rpartition(":")
        async with asyncio.timeout(_CONNECT_S):
            far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, far_writer))
                both.create_task(_pass(far_reader, writer))
        finally:
            far_writer.close()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Every byte, as it comes; the end of one direction is the end of it at the other side."""
    while chunk := await source.read(_CHUNK):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def _stand_by(lease: Lease, listener: socket.socket) -> Held | None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        return await Standby(lease, listener).until_held(stopping)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextmanager
def turn(settings: AggregatorSettings, listener: socket.socket) -> Iterator[Lease | None]:
    """Wait until it is this process's turn, and hold the lease while the block runs; ``None`` where it was
    asked to stop before that.

    Raises:
        ConfigurationError: see ``open_database``, ``migrate``.
    """
    host, port = listener.getsockname()[:2]
    engine = open_database(settings.database)
    try:
        migrate(engine)
        lease = Lease(engine, settings.reached_at or f"{host}:{port}", settings.lease_s or 0.0)
        held = uvloop.run(_stand_by(lease, listener))
        if held is None:
            yield None
            return
        lease.keep_renewing(held)
        try:
            yield lease
        finally:
            lease.release()
    finally:
        engine.dispose()


async def while_held(lease: Lease, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Work until it ends.

    Raises:
        LeaseLost: another process does, or may do, the same.
    """
    working = asyncio.create_task(work())
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=_LOOK_S)
            lease.assert_not_lost()
        await working
    finally:
        working.cancel()
