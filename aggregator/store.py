"""A server's database: transactions, and the rows that both kinds of server keep (rounds and messages)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from aggregator.audit_log import AuditLog, Overtaken
from aggregator.away import AWAY, database_or_away, is_away
from aggregator.database import open_database
from aggregator.migrating import migrate
from aggregator.not_now import DatabaseAway
from aggregator.refusal_quota import RefusalQuota
from aggregator.statements import (
    ADD_MESSAGE,
    ADD_OPENING,
    ADD_ROUND,
    JOB_MESSAGES,
    MESSAGE,
    MESSAGES,
    OPENING,
    PHASE,
    SET_PHASE,
)
from policies.audit_sinks.feed import Feed
from policies.audit_sinks.settings import WAIT_S, SinkSettings
from policies.audit_sinks.sinks import AuditSinks, Taken
from privacy.canonical import canonical_bytes
from privacy.errors import Conflict, NotFound
from privacy.ids import Context, Digest, JobId, PartyId
from privacy.transparency.leaf import Record
from privacy.wire.envelope import Envelope, MessageKind

SERIALIZATION_FAILURE: Final = "40001"
"""PostgreSQL's SQLSTATE for transactions that cannot have followed one another."""


class Store:
    """One database of one process. A state and the log entry that explains it change in one transaction."""

    def __init__(
        self,
        url: str,
        log: AuditLog,
        state_dir: Path,
        sinks: Sequence[SinkSettings],
        sinks_wait_s: float = WAIT_S,
        may_decide: Callable[[Connection], None] | None = None,
    ) -> None:
        """Open it and check its log; copies of its entries go to ``sinks`` once these are started.

        ``may_decide`` is asked first in every transaction, where other processes share the database.

        Raises:
            ConfigurationError: see ``open_database``, ``migrate``, ``AuditSinks``.
            LedgerDamaged: the log does not verify.
        """
        self._engine = open_database(url)
        self._may_decide = may_decide
        self.log = log
        self.refusals = RefusalQuota(time.monotonic)
        with ExitStack() as undo:
            undo.callback(self._engine.dispose)
            migrate(self._engine)
            with self._engine.begin() as connection:
                log.verify(connection)
            self._feed = Feed(log.origin, log.head.size, lambda: log.head, self._stored)
            self.sinks = AuditSinks(sinks, state_dir, self._feed, sinks_wait_s)
            undo.pop_all()

    @contextmanager
    def write(self) -> Iterator[Writer]:
        """A transaction: everything in it is durable when the block ends, or nothing of it happened.

        What sinks have failed or come back since the last one is entered along with it.

        Raises:
            Overtaken: another process has written to this database. DatabaseAway: it does not answer; what
                was written may be there all the same, and the next transaction finds out.
        """
        done = away = False
        news = self.sinks.news()
        try:
            with self._engine.begin() as connection:
                if self._may_decide is not None:
                    self._may_decide(connection)
                writer = Writer(connection, self.log)
                if self.log.unsure:
                    there = self.log.look_again(connection)
                    if there:
                        self._feed.grown(there)
                for one in news:
                    writer.record(one.kind, **one.body)
                yield writer
            done = True
        except DBAPIError as error:
            # Within one process transactions follow one another, so only another process's can clash.
            if getattr(error.orig, "sqlstate", None) == SERIALIZATION_FAILURE:
                raise Overtaken from error
            away = is_away(error)
            if away:
                raise DatabaseAway(AWAY) from error
            raise
        finally:
            if done:
                fresh = self.log.committed()
                if fresh:
                    self._feed.grown(fresh)
            else:
                if away:
                    self.log.lost_sight()
                else:
                    self.log.rolled_back()
                self.sinks.put_back(news)

    def watch(self, watcher: Callable[[Sequence[Record]], None]) -> None:
        """Call this with entries of the log as they are committed."""
        self._feed.watch(watcher)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """A consistent view.

        Raises:
            DatabaseAway: the database does not answer.
        """
        with database_or_away(), self._engine.connect() as connection:
            yield Reader(connection, self.log)

    def assert_here(self) -> None:
        """Whether the database answers, and is as this process left it.

        Raises:
            DatabaseAway: it does not. Overtaken: it is not.
        """
        with self.write() as transaction:
            self.log.check_ours(transaction.connection)

    def close(self) -> None:
        """Let sinks have what they take at once; let go of the database."""
        self.sinks.close()
        self._engine.dispose()

    def _stored(self, first: int, most: int) -> list[bytes]:
        """Older entries, for a sink that is behind.

        Raises:
            OSError: the database does not answer; a sink's thread tries again.
        """
        try:
            with self._engine.connect() as connection:
                return self.log.lines_from(connection, first, most)
        except DBAPIError as error:
            raise OSError("the log's database does not answer") from error


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
        phase = self.connection.execute(PHASE, {"ctx": ctx}).scalar_one_or_none()
        if phase is None:
            raise NotFound(f"round {ctx[:16]}…: there is none under this context here")
        return str(phase)

    def message(self, ctx: Context, kind: MessageKind, party: PartyId) -> Envelope | None:
        """One stored message, if there is one."""
        raw = self._message(ctx, kind, party)
        return None if raw is None else stored_envelope(raw)

    def messages(self, ctx: Context, kind: MessageKind) -> dict[PartyId, Envelope]:
        """All messages of a kind in a round, by party, sorted."""
        found = self.connection.execute(MESSAGES, {"ctx": ctx, "kind": kind})
        return {PartyId(row.party): stored_envelope(row.envelope) for row in found}

    def messages_of_job(
        self, job: JobId, kind: MessageKind, after: int = 0
    ) -> dict[Context, dict[PartyId, Envelope]]:
        """``messages`` of each round of a job beyond ``after``; rounds without any are left out."""
        found: dict[Context, dict[PartyId, Envelope]] = {}
        for row in self.connection.execute(JOB_MESSAGES, {"job": job, "kind": kind, "after": after}):
            of_round = found.setdefault(Context(Digest(row.ctx)), {})
            of_round[PartyId(row.party)] = stored_envelope(row.envelope)
        return found

    def opening(self, ctx: Context) -> Digest | None:
        """Digest of the survivors this context was opened (or released) for, if it was."""
        found = self.connection.execute(OPENING, {"ctx": ctx}).scalar_one_or_none()
        return None if found is None else Digest(found)

    def _message(self, ctx: Context, kind: MessageKind, party: PartyId) -> bytes | None:
        wanted = {"ctx": ctx, "kind": kind, "party": party}
        raw: bytes | None = self.connection.execute(MESSAGE, wanted).scalar_one_or_none()
        return raw


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
        row = {
            "ctx": ctx,
            "job": job,
            "round": number,
            "phase": phase,
            "duration_ms": 0,
            "scrubbed": False,
            "began_at": unix_ms(),
        }
        try:
            self.connection.execute(ADD_ROUND, row)
        except IntegrityError as error:
            raise Conflict(f"round {number} of job {job}: it has been used; a round never repeats") from error

    def set_phase(self, ctx: Context, phase: str, **columns: Any) -> None:
        """Move a round to ``phase``; the caller's table said that it may."""
        self.connection.execute(SET_PHASE, {"of": ctx, "phase": phase, **columns})

    def add_message(self, ctx: Context, party: PartyId, envelope: Envelope) -> bool:
        """Keep a message as signed; False if the very same bytes are kept already.

        Raises:
            Conflict: this party has sent another message of this kind in this round.
        """
        raw = canonical_bytes(envelope)
        known = self._message(ctx, envelope.kind, party)
        if known is not None:
            if known != raw:
                raise Conflict(
                    f"{envelope.kind} of {party}: another one came first in this round; the first one holds"
                )
            return False
        row = {"ctx": ctx, "kind": envelope.kind, "party": party, "envelope": raw}
        self.connection.execute(ADD_MESSAGE, row)
        return True

    def add_opening(self, ctx: Context, survivors: Digest, taken: Taken) -> None:
        """Use up the one opening of this context; ``taken``: what was logged before is at a sink.

        Raises:
            Conflict: it has been used.
        """
        assert taken.size <= self.log.head.size  # noqa: S101 - evidence of this log
        try:
            self.connection.execute(ADD_OPENING, {"ctx": ctx, "survivors": survivors})
        except IntegrityError as error:
            raise Conflict(f"opening {ctx[:16]}…: this round has been opened; a second is refused") from error


def unix_ms() -> int:
    """Now, in Unix milliseconds: what a restart can compare with; no monotonic clock outlives a process."""
    return time.time_ns() // 1_000_000


def stored_envelope(raw: bytes) -> Envelope:
    """An envelope as this server stored it: the canonical bytes of one that it had believed."""
    return Envelope.model_validate_json(raw)
