"""Which of several processes on one database drives the rounds: a lease that ends by itself, and a token.

The holder renews its lease; who finds it ended takes it, with a token that is one higher. Time is the
database's, so that machines' clocks need not agree. A holder that was only slow is stopped by its token: each
of its transactions locks the leases and is refused once another token stands there (fencing: Kleppmann,
"How to do distributed locking", 2016).
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    cast,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError

from aggregator.not_now import NotNow
from aggregator.tables import leases

ROUNDS: Final = "rounds"
"""The one lease there is: of every job's loop, and of answering silos."""
_RENEWALS: Final = 3
"""How often a holder renews within the time of its lease."""
_UNMOVED: Final = text(f"LOCK TABLE {leases.name} IN SHARE MODE")
"""Waits for a renewal that is under way before the transaction's snapshot is taken, which statements but LOCK
take: locking the row instead fails serialization by each renewal that commits meanwhile."""
_log = logging.getLogger("sealsum.aggregator")


class LeaseLost(NotNow):
    """Another process drives the rounds now; this one decides nothing more, and may stand by anew."""


@dataclass(frozen=True)
class Held:
    """What the holder of a lease knows of it."""

    token: int
    until: float
    """Monotonic seconds of this machine: before them nobody else can have taken it."""


@dataclass(frozen=True)
class Holder:
    """Where the one that drives the rounds listens; "" where that is not known yet."""

    address: str


class Lease:
    """One process's side of the lease."""

    def __init__(
        self,
        engine: Engine,
        address: str,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``address``: ``host:port`` where other processes reach this one."""
        self._engine = engine
        self._address = address
        self._seconds = seconds
        self._monotonic = monotonic
        self._name = secrets.token_hex(16)
        self._lost = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._token = 0

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again."""
        return self._seconds / _RENEWALS

    @property
    def address(self) -> str:
        """Where other processes reach this one."""
        return self._address

    def assert_not_lost(self) -> None:
        """Whether this process may go on, as far as it knows by itself.

        Raises:
            LeaseLost: it may not.
        """
        if self._lost.is_set():
            raise LeaseLost(f"lease: token {self._token} could not be renewed in time; standing down")

    def take_or_find(self) -> Held | Holder:
        """Take the lease if nobody holds it now; else where its holder listens.

        Raises:
            DBAPIError: the database does not answer, or another process came first; ask again.
        """
        asked = self._monotonic()
        with self._engine.begin() as connection:
            now = _now(connection)
            row = connection.execute(select(leases).where(leases.c.name == ROUNDS)).one_or_none()
            if row is not None and row.expires_at > connection.execute(select(now)).scalar_one():
                return Holder(row.address)
            terms = {"holder": self._name, "address": self._address, "expires_at": now + self._milliseconds}
            token = 1 if row is None else row.token + 1
            mine = update(leases).where(leases.c.name == ROUNDS, leases.c.token == token - 1)
            if row is None:
                connection.execute(insert(leases).values(name=ROUNDS, token=token, **terms))
            elif connection.execute(mine.values(token=token, **terms)).rowcount != 1:
                return Holder("")  # somebody was faster; where it listens, the next look says
        self._token = token
        return Held(token, asked + self._seconds)

    def renew(self) -> Held:
        """Keep it for another while.

        Raises:
            LeaseLost: another process has taken it. DBAPIError: the database does not answer.
        """
        asked = self._monotonic()
        with self._engine.begin() as connection:
            kept = connection.execute(
                update(leases)
                .where(leases.c.name == ROUNDS, leases.c.token == self._token)
                .values(expires_at=_now(connection) + self._milliseconds)
            )
            if kept.rowcount != 1:
                raise LeaseLost(f"lease: expected token {self._token}; another process has taken over")
        return Held(self._token, asked + self._seconds)

    def assert_held(self, connection: Connection) -> None:
        """First of all in a transaction: nobody takes the lease before it ends.

        Raises:
            LeaseLost: somebody has.
        """
        if connection.dialect.name == "postgresql":
            connection.execute(_UNMOVED)
        query = select(leases.c.token).where(leases.c.name == ROUNDS)
        if self._lost.is_set() or connection.execute(query).scalar_one_or_none() != self._token:
            self._lost.set()
            raise LeaseLost(f"lease: expected token {self._token}; another process drives the rounds now")

    def keep_renewing(self, held: Held) -> None:
        """Renew in a thread of its own until released or lost."""
        self._thread = threading.Thread(target=self._renewing, args=(held,), name="lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let the next one have it at once; nothing where it is lost already."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if not self._lost.is_set():
            with self._engine.begin() as connection:
                connection.execute(
                    update(leases)
                    .where(leases.c.name == ROUNDS, leases.c.token == self._token)
                    .values(expires_at=0)
                )

    @property
    def _milliseconds(self) -> int:
        return int(1000 * self._seconds)

    def _renewing(self, held: Held) -> None:
        while not self._done.wait(self.pause_s):
            try:
                held = self.renew()
            except (LeaseLost, DBAPIError) as error:
                _log.warning("lease_not_renewed", extra={"reason": type(error).__name__})
                if isinstance(error, LeaseLost) or self._monotonic() >= held.until:
                    self._lost.set()
                    return


def take(lease: Lease) -> Held | Holder | None:
    """``take_or_find``; ``None`` where the database does not answer or somebody else was faster."""
    try:
        return lease.take_or_find()
    except DBAPIError:
        return None


def _now(connection: Connection) -> ColumnElement[int]:
    """The database's clock, Unix milliseconds."""
    if connection.dialect.name == "postgresql":
        return cast(func.floor(1000 * func.date_part("epoch", func.clock_timestamp())), BigInteger)
    return literal_column("CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)", BigInteger)
