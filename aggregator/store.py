"""A server's database: transactions, and the rows that both kinds of server keep (rounds and messages)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError, OperationalError

from aggregator.audit_log import AuditLog, Overtaken
from aggregator.database import create_tables, open_database
from aggregator.tables import messages, metadata, openings, rounds
from privacy.canonical import canonical_bytes
from privacy.errors import Conflict, NotFound
from privacy.ids import Context, Digest, JobId, PartyId
from privacy.wire.envelope import Envelope, MessageKind, parse_envelope

SERIALIZATION_FAILURE: Final = "40001"
"""PostgreSQL's SQLSTATE for transactions that cannot have followed one another."""


class Store:
    """One database of one process. A state and the log entry that explains it change in one transaction."""

    def __init__(self, url: str, log: AuditLog) -> None:
        """Open it and check its log.

        Raises:
            ConfigurationError: see ``open_database``. LedgerDamaged: the log does not verify.
        """
        self._engine = open_database(url)
        self.log = log
        with ExitStack() as undo:
            undo.callback(self._engine.dispose)
            create_tables(self._engine, metadata)
            with self._engine.begin() as connection:
                log.verify(connection)
            undo.pop_all()

    @contextmanager
    def write(self) -> Iterator[Writer]:
        """A transaction: everything in it is durable when the block ends, or nothing of it happened.

        Raises:
            Overtaken: another process has written to this database.
        """
        done = False
        try:
            with self._engine.begin() as connection:
                yield Writer(connection, self.log)
            done = True
        except OperationalError as error:
            # Within one process transactions follow one another, so only another process's can clash.
            if getattr(error.orig, "sqlstate", None) == SERIALIZATION_FAILURE:
                raise Overtaken from error
            raise
        finally:
            if done:
                self.log.committed()
            else:
                self.log.rolled_back()

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """A consistent view."""
        with self._engine.connect() as connection:
            yield Reader(connection, self.log)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


class Reader:
    """What can be asked about rounds and their messages."""

    def __init__(self, connection: Connection, log: AuditLog) -> None:
        self.connection = connection
        self.log = log

    def phase(self, ctx: Context) -> str:
        """The stored phase of a round.

        Raises:
            NotFound: no such round.
        """
        query = select(rounds.c.phase).where(rounds.c.ctx == ctx)
        phase = self.connection.execute(query).scalar_one_or_none()
        if phase is None:
            raise NotFound(f"round {ctx[:16]}…: there is none under this context here")
        return str(phase)

    def message(self, ctx: Context, kind: MessageKind, party: PartyId) -> Envelope | None:
        """One stored message, if there is one."""
        query = select(messages.c.envelope).where(
            messages.c.ctx == ctx, messages.c.kind == kind, messages.c.party == party
        )
        raw = self.connection.execute(query).scalar_one_or_none()
        return None if raw is None else parse_envelope(raw)

    def messages(self, ctx: Context, kind: MessageKind) -> dict[PartyId, Envelope]:
        """All messages of a kind in a round, by party, sorted."""
        query = (
            select(messages.c.party, messages.c.envelope)
            .where(messages.c.ctx == ctx, messages.c.kind == kind)
            .order_by(messages.c.party)
        )
        return {PartyId(row.party): parse_envelope(row.envelope) for row in self.connection.execute(query)}

    def opening(self, ctx: Context) -> Digest | None:
        """Digest of the survivors this context was opened (or released) for, if it was."""
        query = select(openings.c.survivors).where(openings.c.ctx == ctx)
        found = self.connection.execute(query).scalar_one_or_none()
        return None if found is None else Digest(found)


class Writer(Reader):
    """What a transaction may change."""

    def record(self, kind: str, **body: Any) -> None:
        """Append to the audit log."""
        self.log.append(self.connection, kind, body)

    def add_round(self, ctx: Context, job: JobId, number: int, phase: str) -> None:
        """Begin a round.

        Raises:
            Conflict: this context, or this round number of this job, has been used.
        """
        row = {"ctx": ctx, "job": job, "round": number, "phase": phase, "duration_ms": 0, "scrubbed": False}
        try:
            self.connection.execute(insert(rounds).values(row))
        except IntegrityError as error:
            raise Conflict(f"round {number} of job {job}: it has been used; a round never repeats") from error

    def set_phase(self, ctx: Context, phase: str, **columns: Any) -> None:
        """Move a round to ``phase``; the caller's table said that it may."""
        self.connection.execute(update(rounds).where(rounds.c.ctx == ctx).values(phase=phase, **columns))

    def add_message(self, ctx: Context, party: PartyId, envelope: Envelope) -> bool:
        """Keep a message as signed; False if the very same bytes are kept already.

        Raises:
            Conflict: this party has sent another message of this kind in this round.
        """
        raw = canonical_bytes(envelope)
        known = self.message(ctx, envelope.kind, party)
        if known is not None:
            if canonical_bytes(known) != raw:
                raise Conflict(
                    f"{envelope.kind} of {party}: another one came first in this round; the first one holds"
                )
            return False
        self.connection.execute(
            insert(messages).values(ctx=ctx, kind=envelope.kind, party=party, envelope=raw)
        )
        return True

    def add_opening(self, ctx: Context, survivors: Digest) -> None:
        """Use up the one opening of this context.

        Raises:
            Conflict: it has been used.
        """
        try:
            self.connection.execute(insert(openings).values(ctx=ctx, survivors=survivors))
        except IntegrityError as error:
            raise Conflict(f"opening {ctx[:16]}…: this round has been opened; a second is refused") from error
