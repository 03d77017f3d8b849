"""A database that goes away in the middle of a job holds the job up; it loses nothing and ends nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from aggregator.audit_log import AuditLog, Overtaken
from aggregator.away import is_away
from aggregator.not_now import DatabaseAway
from aggregator.store import Store
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.transparency.leaf import parse_record
from tests.aggregator_world import client_of, on_loop
from tests.crash_world import CrashWorld, plain_model


class Refused(Exception):
    """What a driver raises, with what it says of it."""

    def __init__(self, **said: str) -> None:
        self.__dict__.update(said)


class Outage:
    """A database that stops answering at a commit, which is on disk or not, and comes back when told."""

    def __init__(self, store: Store, at: int = 1, after: bool = False) -> None:
        self.gone = asyncio.Event()
        self._dialect: Any = store._engine.dialect
        self._commit, self._execute = self._dialect.do_commit, self._dialect.do_execute
        self._left, self._after = at, after
        self._dialect.do_commit = self._at_commit

    def back(self) -> None:
        """It answers again."""
        self._dialect.do_commit, self._dialect.do_execute = self._commit, self._execute

    def _at_commit(self, connection: Any) -> None:
        self._left -= 1
        if self._left > 0:
            self._commit(connection)
            return
        if self._after and self._left == 0:
            self._commit(connection)
        self._dialect.do_execute = self._refuse
        self.gone.set()
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> None:
        raise OperationalError("", None, Refused(sqlite_errorname="SQLITE_BUSY"))


def store_at(path: Path) -> Store:
    log = AuditLog("fed", PartyId("aggregator"), SigningKey.generate())
    return Store(f"sqlite:///{path / 'server.db'}", log, path, ())


def started(store: Store) -> int:
    with store.write() as transaction:
        transaction.record("started", party="aggregator")
    with store.read() as view:
        return len(list(store.log.lines(view.connection)))


@pytest.mark.parametrize("after", [False, True])
@on_loop
async def test_a_commit_that_was_not_answered_is_looked_for_and_not_taken_for_another_process(
    tmp_path: Path, after: bool
) -> None:
    store = store_at(tmp_path)
    started(store)
    outage = Outage(store, after=after)
    with pytest.raises(DatabaseAway):
        started(store)
    with pytest.raises(DatabaseAway), store.read() as view:
        view.log.check_ours(view.connection)
    outage.back()
    assert started(store) == (3 if after else 2)
    with store.read() as view:
        store.log.verify(view.connection)
    store.close()


@on_loop
async def test_another_process_that_wrote_during_an_outage_is_still_found_out(tmp_path: Path) -> None:
    first = store_at(tmp_path)
    started(first)
    outage = Outage(first)
    with pytest.raises(DatabaseAway):
        started(first)
    outage.back()
    second = Store(
        f"sqlite:///{tmp_path / 'server.db'}",
        first.log.__class__("fed", PartyId("aggregator"), first.log._key),
        tmp_path,
        (),
    )
    started(second)
    for _ in range(2):
        with pytest.raises(Overtaken):
            started(first)
    first.close()
    second.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [2, 5])
@on_loop
async def test_a_job_goes_on_with_the_same_round_once_its_database_is_back(
    tmp_path: Path, at: int, after: bool
) -> None:
    world = CrashWorld(tmp_path)
    spec = world.federation.job_spec(parameters=5, rounds=1)
    outages = []

    def build(**settings: Any) -> Any:
        built = CrashWorld.build_aggregator(world, **settings)
        if len(world.shown) == 0 and outages == [] and world.silos:
            outages.append(Outage(built.state.store, at, after))
        return built

    world.build_aggregator = build  # type: ignore[method-assign] # the first that runs has the outage

    async def restore() -> None:
        while not outages or not outages[0].gone.is_set():
            await asyncio.sleep(0.01)
        async with client_of(world.aggregator.app, None) as client:  # type: ignore[union-attr]
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/livez")).status_code == 200
        outages[0].back()

    restoring = asyncio.create_task(restore())
    view = await world.play(spec, [])
    await restoring
    assert [entry["outcome"] for entry in view["history"]] == ["opened"]
    assert view["bytes"] == plain_model(spec, [[silo.sent[0].encoded for silo in world.silos.values()]])
    kinds = [parse_record(line).kind for line in world.shown[-1]]
    assert [kinds.count(kind) for kind in ("round_offered", "sum_opened", "model_published")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("said", "away"),
    [
        ({"sqlite_errorname": "SQLITE_BUSY"}, True),
        ({"sqlite_errorname": "SQLITE_FULL"}, True),
        ({"sqlite_errorname": "SQLITE_IOERR_FSYNC"}, False),
        ({"sqlite_errorname": "SQLITE_CORRUPT"}, False),
        ({"sqlstate": "57P01"}, True),
        ({"sqlstate": "08006"}, True),
        ({"sqlstate": "23505"}, False),
        ({"sqlstate": "58030"}, False),
    ],
)
def test_a_failed_flush_is_no_outage_and_is_not_waited_for(said: dict[str, str], away: bool) -> None:
    assert is_away(OperationalError("", None, Refused(**said))) is away
