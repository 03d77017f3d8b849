"""A server's database is brought to this release's tables whole, and one of a later release is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import Engine, event, text

from aggregator.database import open_database
from aggregator.migrating import migrate
from aggregator.tables import metadata
from privacy.errors import ConfigurationError
from sealsum.cli import cli
from tests.aggregator_world import Silo, World, client_of, on_loop, submit
from tests.federation import Federation

F6DFA11 = Path(__file__).parents[2] / "vectors" / "server_f6dfa11.sql"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(f"sqlite:///{tmp_path / 'server.db'}")
    yield opened
    opened.dispose()


def differences(engine: Engine) -> list[object]:
    """How the database's tables differ from those the code works with."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))


def as_of_f6dfa11(path: Path, rows_of: Path | None = None) -> None:
    """A database as that commit made it, with the rows of another one that it could have held."""
    with sqlite3.connect(path) as old:
        old.executescript(F6DFA11.read_text("utf-8"))
        tables = [name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if rows_of is not None:
            old.execute("ATTACH DATABASE ? AS new", (str(rows_of),))
            for table in tables:
                columns = ", ".join(row[1] for row in old.execute(f"PRAGMA table_info({table})"))
                old.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM new.{table}")  # noqa: S608 - its own names
    old.close()


def tables_in(path: Path) -> list[tuple[str]]:
    """Every table's definition."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT sql FROM sqlite_master").fetchall()


def test_the_revisions_make_the_very_tables_that_the_code_works_with(engine: Engine) -> None:
    migrate(engine)
    assert differences(engine) == []
    migrate(engine)
    assert differences(engine) == []


def test_a_database_of_f6dfa11_gets_the_very_same_tables(engine: Engine, tmp_path: Path) -> None:
    as_of_f6dfa11(tmp_path / "server.db")
    migrate(engine)
    assert differences(engine) == []


@on_loop
async def test_servers_of_f6dfa11_are_upgraded_with_their_jobs_models_and_logs(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    async with world.running(world.build_aggregator()) as aggregator:
        runs = [Silo(world, aggregator, name).run() for name in world.federation.charter.silos]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*runs), 60)
    for server in world.servers.values():
        server.store.close()
    for party in ("aggregator", "server-0", "server-1"):
        new = tmp_path / party / "server.db"
        new.rename(tmp_path / "rows.db")
        as_of_f6dfa11(new, tmp_path / "rows.db")
    world.servers.clear()
    for party in ("server-0", "server-1"):
        world.start_server(party)
    async with (
        world.running(world.build_aggregator()) as again,
        client_of(again.app, world.federation.certificate_der("researcher")) as client,
    ):
        view = (await client.get("/v1/jobs/heart")).json()
        assert (view["state"], view["openings"]) == ("finished", 1)
        assert (await client.get("/v1/jobs/heart/evidence")).status_code == 200


def test_a_database_of_a_later_release_is_refused_by_name_and_left_as_it_is(
    engine: Engine, tmp_path: Path
) -> None:
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigurationError, match="got 9999: a later release has changed this database"):
        migrate(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"


def test_serving_on_a_database_of_a_later_release_exits_78(tmp_path: Path) -> None:
    Federation().identity("server-0", tmp_path / "state")
    newer = open_database(f"sqlite:///{tmp_path / 'state' / 'server.db'}")
    migrate(newer)
    with newer.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    newer.dispose()
    config = tmp_path / "server.yaml"
    config.write_text("state_dir: state\nlisten: 127.0.0.1:0\n")
    ended = CliRunner().invoke(cli, ["share-server", "serve", "--config", str(config)])
    assert ended.exit_code == 78
    assert "a later release has changed this database" in ended.output


def test_a_crash_in_the_middle_of_the_revisions_leaves_the_database_as_it_was(
    engine: Engine, tmp_path: Path
) -> None:
    as_of_f6dfa11(tmp_path / "server.db")
    before = tables_in(tmp_path / "server.db")

    class Crash(BaseException):
        pass

    def crash(_connection: object) -> None:
        raise Crash

    event.listen(engine, "commit", crash)
    with pytest.raises(Crash):
        migrate(engine)
    event.remove(engine, "commit", crash)
    assert tables_in(tmp_path / "server.db") == before
    migrate(engine)
    assert differences(engine) == []


def test_processes_that_start_at_once_take_turns(tmp_path: Path) -> None:
    engines = [open_database(f"sqlite:///{tmp_path / 'server.db'}") for _ in range(4)]
    with ThreadPoolExecutor(4) as starters:
        list(starters.map(migrate, engines))
    assert differences(engines[0]) == []
    for engine in engines:
        engine.dispose()
