"""A server's append-only log: each decision is an entry of a signed hash chain, in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from aggregator.tables import log_entries
from privacy.canonical import canonical_bytes
from privacy.chain import EMPTY, Entry, Head, next_entry, parse_entry, verify_entries
from privacy.identity import SigningKey
from privacy.ids import PartyId

PAGE = 500
"""Entries read at a time, so that a long log never lies in memory whole."""


class AuditLog:
    """The chain ``<federation>/log/<party>``; its head is the last row."""

    def __init__(self, federation: str, party: PartyId, key: SigningKey) -> None:
        self.origin = f"{federation}/log/{party}"
        self._key = key
        self._head: Head | None = None

    def append(self, connection: Connection, kind: str, body: dict[str, Any]) -> Entry:
        """Add one entry within the caller's transaction: a decision and its entry stand or fall together."""
        entry = next_entry(self.head(connection), self.origin, utc_now(), kind, body, self._key)
        connection.execute(insert(log_entries).values(seq=entry.seq, line=canonical_bytes(entry)))
        self._head = entry.head
        return entry

    def head(self, connection: Connection) -> Head:
        """The last entry's place and hash; remembered, because this process alone appends."""
        if self._head is not None:
            return self._head
        query = select(log_entries.c.line).order_by(log_entries.c.seq.desc()).limit(1)
        line = connection.execute(query).scalar_one_or_none()
        return EMPTY if line is None else parse_entry(line).head

    def rolled_back(self) -> None:
        """A transaction with entries in it did not happen: look at the table again."""
        self._head = None

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
        """Check the whole chain and return its head.

        Raises:
            LedgerDamaged: an entry was altered, dropped, reordered or forged.
        """
        head = EMPTY
        entries = (parse_entry(line) for line in self.lines(connection))
        for entry in verify_entries(entries, self.origin, self._key.verify_key):
            head = entry.head
        return head


def utc_now() -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
