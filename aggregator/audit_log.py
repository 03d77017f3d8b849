"""A server's append-only log: each decision is a leaf of a Merkle tree, in its own transaction."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from aggregator.statements import ADD_LOG_ENTRY, LAST_LOG_NODES, LOG_NODES
from aggregator.tables import log_checkpoints, log_entries
from privacy.errors import LedgerDamaged, MalformedMessage, NotFound, SealsumError, SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    NoteSignature,
    cosign,
    log_origin,
    open_checkpoint,
    sign_checkpoint,
    witness_name,
)
from privacy.transparency.leaf import SALT_BYTES, Record, new_record, parse_record
from privacy.transparency.merkle import (
    HASH_BYTES,
    Frontier,
    NodeOf,
    consistency_proof,
    inclusion_proof,
    place_of,
)

PAGE: Final = 500
"""Entries read at a time, so that a long log never lies in memory whole."""
OURS: Final = "ours"
"""The row of the newest checkpoint that we signed and kept."""


class Overtaken(SealsumError):
    """Another process appended to our log: what this one believes is out of date, and it writes no more."""

    def __init__(self) -> None:
        super().__init__(
            "log: expected to be the only process on this database, and another one has written to it; stop "
            "the other one and restart this one"
        )


class AuditLog:
    """The log ``sealsum/<federation>/log/<party>``.

    The tree's frontier is computed once, at the start, and remembered. As each entry's number is unique, a
    process whose database another one has written to since fails at its next decision, and at every later
    one. Nothing is signed until a checkpoint is asked for.
    """

    def __init__(self, federation: str, party: PartyId, key: SigningKey) -> None:
        self.origin = log_origin(federation, party)
        self._witness = witness_name(federation, party)
        self._key = key
        self._committed = Frontier()
        self._pending = Frontier()
        self._signed: Checkpoint | None = None
        self._fresh: list[Record] = []
        self._unsure: tuple[Frontier, list[Record]] | None = None
        """Entries of a transaction whose commit was not answered, and the tree with them."""

    def append(self, connection: Connection, kind: str, body: Mapping[str, Any]) -> Record:
        """Add one entry within the caller's transaction: a decision and its entry stand or fall together.

        Raises:
            Overtaken: there is an entry of that number already.
        """
        salts = os.urandom(SALT_BYTES * len(body))
        record = new_record(self._pending.size, utc_now(), kind, body, salts)
        frontier, completed = self._pending.append(record.leaf_hash(self.origin))
        row = {"seq": record.seq, "line": record.line(), "nodes": b"".join(completed)}
        try:
            connection.execute(ADD_LOG_ENTRY, row)
        except IntegrityError as error:
            raise Overtaken from error
        self._pending = frontier
        self._fresh.append(record)
        return record

    @property
    def unsure(self) -> bool:
        """Whether what became of the last transaction is not known."""
        return self._unsure is not None

    def cosign(self, other: Checkpoint, seconds: int) -> NoteSignature:
        """This server's signature as a witness of another party's log."""
        return cosign(other, self._witness, self._key, seconds)

    @property
    def head(self) -> LogHead:
        """How many entries there are, and the root over them."""
        return _head(self._committed)

    def checkpoint(self) -> Checkpoint:
        """The head, signed; the same one as long as nothing is appended."""
        if self._signed is None or self._signed.head.size != self._committed.size:
            self._signed = sign_checkpoint(self.origin, self.head, self._key)
        return self._signed

    def committed(self) -> list[Record]:
        """The transaction's entries are on disk; returns them."""
        self._committed = self._pending
        fresh, self._fresh = self._fresh, []
        return fresh

    def rolled_back(self) -> None:
        """A transaction with entries in it did not happen."""
        self._pending = self._committed
        self._fresh = []

    def lost_sight(self) -> None:
        """The database went away with a transaction: its entries are there, or none of them is."""
        if self._fresh:
            self._unsure = (self._pending, self._fresh)
        self.rolled_back()

    def look_again(self, connection: Connection) -> list[Record]:
        """What became of a transaction that was lost sight of: its entries, if they are there.

        Raises:
            Overtaken: the log ends neither where it did before them nor with them.
        """
        found, unsure = _end_of(connection), self._unsure
        if unsure is None or found != _end(unsure[0]):
            self.check_ours(connection)
            self._unsure = None
            return []
        self._committed = self._pending = unsure[0]
        self._unsure = None
        return unsure[1]

    def check_ours(self, connection: Connection) -> None:
        """Whether the database still ends where this process left it.

        Raises:
            Overtaken: it does not.
        """
        ends = [self._committed] if self._unsure is None else [self._committed, self._unsure[0]]
        if _end_of(connection) not in [_end(frontier) for frontier in ends]:
            raise Overtaken

    def lines(self, connection: Connection, size: int | None = None) -> Iterator[bytes]:
        """The first ``size`` entries (all of them if left out) as their lines, in order."""
        return (line for _, line, _ in self._rows(connection, size))

    def lines_from(self, connection: Connection, first: int, most: int) -> list[bytes]:
        """At most ``most`` entries from the number ``first`` on, as their lines."""
        query = select(log_entries.c.line).where(log_entries.c.seq >= first).order_by(log_entries.c.seq)
        return list(connection.execute(query.limit(most)).scalars())

    def consistency(self, connection: Connection, first: int, second: int) -> tuple[Digest, ...]:
        """Proof that the first ``second`` entries begin with the first ``first``.

        Raises:
            NotFound: there are not as many entries, or they are asked for in the wrong order.
        """
        if not 0 <= first <= second <= self._committed.size:
            raise NotFound(
                f"log: expected 0 ≤ from ≤ to ≤ {self._committed.size}, got from {first} to {second}"
            )
        return _hex(consistency_proof(first, second, self._nodes(connection)))

    def inclusion(self, connection: Connection, seq: int, size: int) -> tuple[Digest, tuple[Digest, ...]]:
        """An entry's leaf hash, and the proof that it is among the first ``size``.

        Raises:
            NotFound: there are not as many entries.
        """
        if not 0 <= seq < size <= self._committed.size:
            raise NotFound(f"log: expected seq < size ≤ {self._committed.size}, got seq {seq}, size {size}")
        node = self._nodes(connection)
        return Digest(node(0, seq).hex()), _hex(inclusion_proof(seq, size, node))

    def keep_checkpoint(self, connection: Connection, checkpoint: Checkpoint, name: str = OURS) -> None:
        """Keep a checkpoint, so that a start finds a log that lacks what it says."""
        connection.execute(delete(log_checkpoints).where(log_checkpoints.c.name == name))
        connection.execute(insert(log_checkpoints).values(name=name, note=checkpoint.note()))

    def kept_checkpoint(self, connection: Connection, name: str = OURS) -> Checkpoint | None:
        """The checkpoint kept under a name, its signature by this server verified.

        Raises:
            LedgerDamaged: it is not one that this server signed.
        """
        note = self.kept_note(connection, name)
        if note is None:
            return None
        try:
            return open_checkpoint(note, self.origin, self._key.verify_key)
        except (MalformedMessage, SignatureRejected) as error:
            raise LedgerDamaged(f"log {self.origin}: the checkpoint kept as {name} is not ours") from error

    def kept_note(self, connection: Connection, name: str) -> str | None:
        """A note as it was kept, not yet believed."""
        query = select(log_checkpoints.c.note).where(log_checkpoints.c.name == name)
        return connection.execute(query).scalar_one_or_none()

    def verify(self, connection: Connection) -> LogHead:
        """Compute the tree anew from the entries, continue from its head and return that:

        (1) each entry is in its place, and the stored tree is the one that the entries give; (2) it begins
        with what the last checkpoint that was kept has signed.

        Raises:
            LedgerDamaged: an entry was altered, dropped or reordered since it was written.
        """
        kept = self.kept_checkpoint(connection)
        frontier = Frontier()
        for seq, line, nodes in self._rows(connection, None):
            # (2)
            if kept is not None and kept.head.size == frontier.size and kept.head != _head(frontier):
                raise LedgerDamaged(f"log {self.origin}: its first {seq} entries are not those we signed")
            # (1)
            record = parse_record(line)
            if record.seq != seq or seq != frontier.size:
                raise LedgerDamaged(f"log {self.origin}: expected entry {frontier.size}, got entry {seq}")
            frontier, completed = frontier.append(record.leaf_hash(self.origin))
            if nodes != b"".join(completed):
                raise LedgerDamaged(f"log {self.origin}: entry {seq} is not what the tree was built on")
        # (2)
        if kept is not None and (
            kept.head.size > frontier.size
            or (kept.head.size == frontier.size and kept.head != _head(frontier))
        ):
            raise LedgerDamaged(
                f"log {self.origin}: expected the {kept.head.size} entries that we signed, "
                f"got {frontier.size}; restore the database whole"
            )
        self._committed = self._pending = frontier
        return self.head

    def _rows(self, connection: Connection, size: int | None) -> Iterator[tuple[int, bytes, bytes]]:
        after = -1
        while True:
            query = select(log_entries).where(log_entries.c.seq > after).order_by(log_entries.c.seq)
            if size is not None:
                query = query.where(log_entries.c.seq < size)
            page = connection.execute(query.limit(PAGE)).all()
            for row in page:
                yield row.seq, row.line, row.nodes
            if len(page) < PAGE:
                return
            after = page[-1].seq

    def _nodes(self, connection: Connection) -> NodeOf:
        def node(level: int, index: int) -> bytes:
            found = connection.execute(LOG_NODES, {"seq": place_of(level, index)}).scalar_one()
            return bytes(found[HASH_BYTES * level : HASH_BYTES * (level + 1)])

        return node


def _end(frontier: Frontier) -> tuple[int, bytes]:
    """Size and last peak of a tree: what its last row shows of it."""
    return frontier.size, frontier.peaks[-1] if frontier.peaks else b""


def _end_of(connection: Connection) -> tuple[int, bytes]:
    last = connection.execute(LAST_LOG_NODES).one_or_none()
    return (0, b"") if last is None else (last.seq + 1, last.nodes[-HASH_BYTES:])


def utc_now() -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _head(frontier: Frontier) -> LogHead:
    return LogHead(size=frontier.size, root=Digest(frontier.root.hex()))


def _hex(hashes: tuple[bytes, ...]) -> tuple[Digest, ...]:
    return tuple(Digest(one.hex()) for one in hashes)
