"""Bringing a server's database to the revision of tables that this code knows, at start and under a lock.

Revisions are Alembic's (``aggregator/migrations/versions``). A process that starts takes them all in one
transaction, so a kill in between leaves the database as it was; others that start meanwhile take turns. A
database that a later release has changed is refused: rows that this code cannot read must not be decided on.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from pathlib import Path
from typing import Final

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

from privacy.errors import ConfigurationError

_SCRIPTS: Final = Path(__file__).parent / "migrations"
_TABLES_LOCK: Final = 0x5EA15C
"""PostgreSQL's advisory lock under which tables change."""
_ISOLATION: Final = {"sqlite": "SERIALIZABLE", "postgresql": "READ COMMITTED"}
"""Each statement sees what is committed by then: after the wait, the other process's tables."""
_IN_THIS_PROCESS: Final = threading.Lock()
"""Alembic's ``op`` is one name for the whole process."""


logging.getLogger("alembic").setLevel(logging.WARNING)  # it greets at every look


def migrate(engine: Engine) -> None:
    """Apply the revisions that the database lacks; nothing where it lacks none.

    Raises:
        ConfigurationError: a later release has changed it.
    """
    scripts, known = _revisions()
    with engine.connect() as connection:
        if _revision(connection, known) == scripts.get_current_head():
            return
    with _IN_THIS_PROCESS, engine.connect() as plain:
        connection = plain.execution_options(isolation_level=_ISOLATION[engine.dialect.name])
        with connection.begin():
            _take_turns(connection)
            _revision(connection, known)
            _upgrade(connection, scripts)


@cache
def _revisions() -> tuple[ScriptDirectory, frozenset[str]]:
    scripts = ScriptDirectory(str(_SCRIPTS))
    return scripts, frozenset(script.revision for script in scripts.walk_revisions())


def _revision(connection: Connection, known: frozenset[str]) -> str | None:
    """Where the database is; ``None`` before the first revision.

    Raises:
        ConfigurationError: beyond what this code knows.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise ConfigurationError(
            f"database_url: expected tables of revision {max(known)} or older, got {found}: a later release "
            "has changed this database; start that release, or restore the backup from before the upgrade"
        )
    return found


def _take_turns(connection: Connection) -> None:
    """Hold every other process that starts now until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_TABLES_LOCK)))
    else:
        # Python's driver begins no transaction for DDL by itself, and each statement would stand alone.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _upgrade(connection: Connection, scripts: ScriptDirectory) -> None:
    with EnvironmentContext(
        Config(), scripts, fn=lambda at, _context: scripts._upgrade_revs("head", at)
    ) as environment:
        environment.configure(connection=connection, transactional_ddl=True)
        environment.run_migrations()
