"""Whether a database's error means that it is away for now, so that asking again can help.

A connection that broke, a server that restarts, a lock that was not to be had: nothing was decided, or a
whole transaction was. An error of the disk is none of these: after a failed flush nobody knows what is on it,
so it ends the process (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError

from aggregator.not_now import DatabaseAway

_CLASSES: Final = ("08", "53", "57P", "55P03")
"""SQLSTATEs of lost connections, short resources, shutdowns and locks that were not to be had."""
_SQLITE: Final = frozenset({"SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_LOCKED"})


AWAY: Final = "database: it does not answer now; nothing is lost, ask again"


@contextmanager
def database_or_away() -> Iterator[None]:
    """Run statements; say so where the database is away.

    Raises:
        DatabaseAway: it is.
    """
    try:
        yield
    except DBAPIError as error:
        if is_away(error):
            raise DatabaseAway(AWAY) from error
        raise


def is_away(error: DBAPIError) -> bool:
    """Whether the same statements may succeed later."""
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return str(name).split("_SNAPSHOT")[0] in _SQLITE
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return bool(error.connection_invalidated) or type(error.orig).__name__ == "OperationalError"
    return any(str(state).startswith(one) for one in _CLASSES)
