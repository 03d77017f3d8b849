"""Opening a server's database so that commits last, transactions are serializable and no secret shows.

Two kinds are taken. SQLite is a file in the state directory. PostgreSQL is named by a URL without a
password: libpq finds that by itself (``~/.pgpass``, ``passfile=``, a client certificate, the socket's
peer), so it is in no settings file, argument list, log or error of ours.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from privacy.errors import ConfigurationError

LOCK_WAIT_S: Final = 10
"""Longest wait for another connection's transaction; then an error, not a hang."""

_POSTGRESQL_OPTIONS: Final = frozenset(
    {"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "connect_timeout"}
)
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DURABLE: Final = f"""
    SELECT set_config('lock_timeout', '{LOCK_WAIT_S}s', false),
           CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN ''
                ELSE set_config('synchronous_commit', 'on', false) END
"""


def checked_url(text: str) -> URL:
    """A database URL that this module opens. Checks, in this order:

    (1) it is a URL of one of the two kinds; (2) a SQLite database is a file; (3) no password stands in
    it, and no option but those known here; (4) another machine is reached by verified TLS, which is the
    default: a weaker ``sslmode`` may be asked for on this machine only.

    Raises:
        ValueError: it is not; the message does not repeat the URL.
    """
    # (1)
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ValueError("database_url: expected a URL, like postgresql+psycopg://…") from error
    if url.drivername == "sqlite":
        # (2)
        if url.database in (None, "", ":memory:") or url.query:
            raise ValueError("database_url: expected sqlite:///FILE; what is once-only must outlive us")
        return url
    if url.drivername != "postgresql+psycopg":
        raise ValueError(
            f"database_url: expected sqlite:/// or postgresql+psycopg://, got {url.drivername}://"
        )
    # (3)
    unknown = sorted(set(url.query) - _POSTGRESQL_OPTIONS)
    if url.password is not None or unknown:
        found = "a password" if url.password is not None else ", ".join(unknown)
        raise ValueError(
            f"database_url: expected no password and no option but {', '.join(sorted(_POSTGRESQL_OPTIONS))}, "
            f"got {found}; a password belongs in ~/.pgpass or the file that passfile= names"
        )
    # (4)
    sslmode = url.query.get("sslmode", "verify-full")
    if sslmode != "verify-full" and not _on_this_machine(url):
        raise ValueError(
            "database_url.sslmode: expected verify-full (the default) for a database on another machine"
        )
    return url.update_query_dict({"sslmode": sslmode})


def open_database(text: str) -> Engine:
    """An engine whose every connection keeps what it commits.

    Raises:
        ConfigurationError: the URL is not taken, its driver is not installed, nothing answers there, or
            the PostgreSQL server does not flush to disk.
    """
    try:
        url = checked_url(text)
        engine = _engine(url)
        with engine.connect():
            pass
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    except ImportError as error:
        raise ConfigurationError(
            "database_url: PostgreSQL needs its driver: pip install 'sealsum[postgresql]'"
        ) from error
    except OperationalError as error:
        reason = " ".join(str(error.orig).split())
        raise ConfigurationError(f"database_url: expected a database there; {reason}") from error
    return engine


def _engine(url: URL) -> Engine:
    # Statements' parameters are shares and messages: no error repeats them.
    if url.drivername == "sqlite":
        engine = create_engine(url, hide_parameters=True)
        event.listen(engine, "connect", _strict_sqlite)
        return engine
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(LOCK_WAIT_S)})
    # SQLite's transactions are serializable anyway. Connections are tried before use: a database may restart.
    engine = create_engine(url, hide_parameters=True, isolation_level="SERIALIZABLE", pool_pre_ping=True)
    event.listen(engine, "connect", _strict_postgresql)
    return engine


def _on_this_machine(url: URL) -> bool:
    stated = url.query.get("host", ())
    lists = [url.host or "", *([stated] if isinstance(stated, str) else stated)]
    hosts = [host for listed in lists for host in listed.split(",") if host]  # libpq takes several in one
    return bool(hosts) and all(host in _THIS_MACHINE or host.startswith("/") for host in hosts)


def _strict_sqlite(connection: Any, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # a commit survives power loss, as the once-only rules need
        "foreign_keys=ON",
        f"busy_timeout={1000 * LOCK_WAIT_S}",
        "secure_delete=ON",  # scrubbed seeds are overwritten, not merely unlinked
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _strict_postgresql(connection: Any, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(_DURABLE)
    cursor.execute("SELECT current_setting('fsync')")
    (fsync,) = cursor.fetchone()
    cursor.close()
    connection.commit()
    if fsync != "on":
        raise ConfigurationError("database_url: expected a PostgreSQL server with fsync=on, got off")
