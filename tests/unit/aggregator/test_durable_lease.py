"""Of several processes on one database one decides; its lease ends by itself, its token fences it off."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import Engine, update

from aggregator.audit_log import AuditLog
from aggregator.database import open_database
from aggregator.lease import Held, Holder, Lease, LeaseLost, take
from aggregator.migrating import migrate
from aggregator.settings import AggregatorSettings
from aggregator.standby import Standby, while_held
from aggregator.store import Store
from aggregator.tables import leases
from privacy.identity import SigningKey
from privacy.ids import PartyId
from tests.aggregator_world import on_loop

LONG_S = 60.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(f"sqlite:///{tmp_path / 'server.db'}")
    migrate(opened)
    yield opened
    opened.dispose()


def runs_out(engine: Engine) -> None:
    """Its time is up, by the database's clock."""
    with engine.begin() as connection:
        connection.execute(update(leases).values(expires_at=0))


def test_one_of_two_holds_the_lease_and_the_other_learns_where_it_listens(engine: Engine) -> None:
    first, second = Lease(engine, "one:1", LONG_S), Lease(engine, "two:2", LONG_S)
    assert isinstance(first.take_or_find(), Held)
    assert second.take_or_find() == Holder("one:1")
    assert isinstance(first.renew(), Held)


def test_each_new_holder_has_a_higher_token_and_the_old_one_keeps_nothing(engine: Engine) -> None:
    first, second = Lease(engine, "one:1", LONG_S), Lease(engine, "two:2", LONG_S)
    before = first.take_or_find()
    runs_out(engine)
    after = second.take_or_find()
    assert isinstance(before, Held)
    assert isinstance(after, Held)
    assert after.token == before.token + 1
    with pytest.raises(LeaseLost, match="another process has taken over"):
        first.renew()
    first.release()
    assert first.take_or_find() == Holder("two:2"), "who lost it releases nothing of the other's"


def test_a_lease_that_is_released_is_had_at_once(engine: Engine) -> None:
    first, second = Lease(engine, "one:1", LONG_S), Lease(engine, "two:2", LONG_S)
    held = first.take_or_find()
    assert isinstance(held, Held)
    first.keep_renewing(held)
    first.release()
    assert isinstance(second.take_or_find(), Held)


def test_an_old_holder_writes_nothing_after_the_takeover_not_even_without_a_log_entry(
    engine: Engine, tmp_path: Path
) -> None:
    first, second = Lease(engine, "one:1", LONG_S), Lease(engine, "two:2", LONG_S)
    key, url = SigningKey.generate(), f"sqlite:///{tmp_path / 'server.db'}"
    first.take_or_find()
    log = AuditLog("fed", PartyId("aggregator"), key)
    store = Store(url, log, tmp_path, (), may_decide=first.assert_held)
    with store.write() as transaction:
        transaction.record("started", party="aggregator")
    runs_out(engine)
    second.take_or_find()
    for _ in range(2):
        with pytest.raises(LeaseLost, match="another process drives the rounds"), store.write():
            raise AssertionError("expected no transaction")
    with pytest.raises(LeaseLost, match="standing down"):
        first.assert_not_lost()
    store.close()


@on_loop
async def test_work_ends_with_the_lease(engine: Engine) -> None:
    lease = Lease(engine, "one:1", 0.3)
    held = lease.take_or_find()
    assert isinstance(held, Held)
    with engine.begin() as connection:
        connection.execute(update(leases).values(token=held.token + 1))
    lease.keep_renewing(held)
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(while_held(lease, lambda: asyncio.sleep(60)), 30)
    lease.release()


def test_only_one_of_many_takes_a_lease_that_has_run_out(tmp_path: Path, engine: Engine) -> None:
    Lease(engine, "gone:0", LONG_S).take_or_find()
    runs_out(engine)
    engines = [open_database(f"sqlite:///{tmp_path / 'server.db'}") for _ in range(4)]
    found: list[object] = []
    ready = threading.Barrier(4)

    def race(own: Engine, number: int) -> None:
        lease = Lease(own, f"racer:{number}", LONG_S)
        ready.wait(30)
        found.append(take(lease))

    racers = [threading.Thread(target=race, args=(own, number)) for number, own in enumerate(engines)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)
    assert sum(isinstance(one, Held) for one in found) == 1
    for own in engines:
        own.dispose()


@on_loop
async def test_a_standby_hands_bytes_on_to_the_holder_and_takes_over_when_it_has_gone(engine: Engine) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    holder = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = holder.sockets[0].getsockname()[1]
    Lease(engine, f"127.0.0.1:{port}", LONG_S).take_or_find()
    listener = socket.create_server(("127.0.0.1", 0))
    standing_by = asyncio.create_task(
        Standby(Lease(engine, "here:1", 0.3), listener).until_held(asyncio.Event())
    )
    said = b""
    until = time.monotonic() + 30
    while not said and time.monotonic() < until:  # it may not know of the holder yet
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        with suppress(ConnectionError):
            writer.write(b"hello " * 50_000)
            writer.write_eof()
            said = await reader.read()
        writer.close()
    assert said == b"HELLO " * 50_000
    holder.close()
    runs_out(engine)
    held = await asyncio.wait_for(standing_by, 30)
    assert held is not None
    assert held.token == 2
    listener.close()


@on_loop
async def test_a_standby_never_hands_a_connection_on_to_itself(engine: Engine) -> None:
    """A process killed and started again finds its predecessor's lease, at its own address: one connection
    of anybody's would become as many as there are descriptors."""
    listener = socket.create_server(("127.0.0.1", 0))
    mine = "{}:{}".format(*listener.getsockname())
    Lease(engine, mine, LONG_S).take_or_find()  # and is killed
    stopping = asyncio.Event()
    standby = Standby(Lease(engine, mine, LONG_S), listener)
    standing_by = asyncio.create_task(standby.until_held(stopping))
    while standby._holder is None:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    assert await asyncio.wait_for(reader.read(), 10) == b"", "closed at once: the caller dials again"
    writer.close()
    stopping.set()
    assert await standing_by is None
    listener.close()


@on_loop
async def test_a_standby_keeps_descriptors_for_itself(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        writer.close()
        await writer.wait_closed()

    monkeypatch.setattr("aggregator.standby._PASSED_MAX", 3)
    holder = await asyncio.start_server(wait, "127.0.0.1", 0)
    Lease(engine, "{}:{}".format(*holder.sockets[0].getsockname()), LONG_S).take_or_find()
    listener, stopping = socket.create_server(("127.0.0.1", 0)), asyncio.Event()
    standby = Standby(Lease(engine, "here:1", LONG_S), listener)
    standing_by = asyncio.create_task(standby.until_held(stopping))
    while standby._holder is None:
        await asyncio.sleep(0.01)
    opened = [await asyncio.open_connection(*listener.getsockname()) for _ in range(3)]
    said = [await asyncio.wait_for(reader.read(4), 10) for reader, _ in opened]
    assert said == [b"here"] * 3
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    assert await asyncio.wait_for(reader.read(), 10) == b"", "one too many"
    for one in (writer, *(each for _, each in opened)):
        one.close()
        await one.wait_closed()
    for reader, _ in opened:
        await reader.read()
    while standby._passing:
        await asyncio.sleep(0.01)
    stopping.set()
    assert await standing_by is None
    holder.close()
    listener.close()


def test_processes_that_listen_everywhere_say_where_they_are_reached(tmp_path: Path) -> None:
    shared = {"state_dir": tmp_path, "lease_s": 15, "database_url": "postgresql+psycopg://db/sealsum"}
    for listen in ("0.0.0.0:8443", "[::]:8443"):
        with pytest.raises(ValidationError, match="reached_at: expected host:port"):
            AggregatorSettings.model_validate({**shared, "listen": listen})
        AggregatorSettings.model_validate({**shared, "listen": listen, "reached_at": "one:8443"})


@on_loop
async def test_a_standby_that_is_asked_to_stop_takes_nothing(engine: Engine) -> None:
    listener, stopping = socket.create_server(("127.0.0.1", 0)), asyncio.Event()
    stopping.set()
    assert await Standby(Lease(engine, "here:1", LONG_S), listener).until_held(stopping) is None
    listener.close()


def test_a_lease_on_a_file_of_one_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="lease_s: expected a PostgreSQL database_url"):
        AggregatorSettings(state_dir=tmp_path, listen="127.0.0.1:0", lease_s=15)
