"""A server's append-only log: each decision is an entry of a signed hash chain, in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from aggregator.statements import ADD_LOG_ENTRY
from aggregator.tables import log_entries
from privacy.canonical import canonical_bytes
from privacy.chain import EMPTY, Entry, Head, next_entry, parse_entry, verify_entries
from privacy.errors import SealsumError
from privacy.identity import SigningKey
from privacy.ids import PartyId

PAGE = 500
"""Entries read at a time, so that a long log never lies in memory whole."""


class Overtaken(SealsumError):
    """Another process appended to our log: what this one believes is out of date, and it writes no more."""

    def __init__(self) -> None:
        super().__init__(
            "log: expected to be the only process on this database, and another one has written to it, or a "
            "commit's answer was lost; stop the other one and restart this one"
        )


class AuditLog:
    """The chain ``<federation>/log/<party>``; its head is the last row.

    The head is read once, at the start, and remembered. As each entry's number is unique, a process whose
    database another one has written to since fails at its next decision, and at every later one.
    """

    def __init__(self, federation: str, party: PartyId, key: SigningKey) -> None:
        self.origin = f"{federation}/log/{party}"
        self._key = key
        self._committed = EMPTY
        self._pending = EMPTY

    def append(self, connection: Connection, kind: str, body: dict[str, Any]) -> Entry:
        """Add one entry within the caller's transaction: a decision and its entry stand or fall together.

        Raises:
            Overtaken: there is an entry of that number already.
        """
        entry = next_entry(self._pending, self.origin, utc_now(), kind, body, self._key)
        try:
            connection.execute(ADD_LOG_ENTRY, {"seq": entry.seq, "line": canonical_bytes(entry)})
        except IntegrityError as error:
            raise Overtaken from error
        self._pending = entry.head
        return entry

    @property
    def head(self) -> Head:
        """The last entry's place and hash."""
        return self._committed

    def committed(self) -> None:
        """The transaction's entries are on disk."""
        self._committed = self._pending

    def rolled_back(self) -> None:
        """A transaction with entries in it did not happen."""
        self._pending = self._committed

    def check_ours(self, connection: Connection) -> None:
        """Whether the database still ends where this process left it.

        Raises:
            Overtaken: it does not.
        """
        query = select(log_entries.c.line).order_by(log_entries.c.seq.desc()).limit(1)
        line = connection.execute(query).scalar_one_or_none()
        if (EMPTY if line is None else parse_entry(line).head) != self._committed:
            raise Overtaken

    def lines(self, connection: Connection) -> Iterator[bytes]:
        """Every entry as its canonical line, in order."""
        after = -1
        while True:
            query = select(log_entries).where(log_entries.c.seq > after).order_by(log_entries.c.seq)
            page = connection.execute(query.limit(PAGE)).all()
            yield from (row.line for row in page)
            if len(page) < PAGE:
                return
            after = page[-1].seq

    def verify(self, connection: Connection) -> Head:
        """Check the whole chain, continue from its head and return that.

        Raises:
            LedgerDamaged: an entry was altered, dropped, reordered or forged.
        """
        head = EMPTY
        entries = (parse_entry(line) for line in self.lines(connection))
        for entry in verify_entries(entries, self.origin, self._key.verify_key):
            head = entry.head
        self._committed = self._pending = head
        return head


def utc_now() -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
