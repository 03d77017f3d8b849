"""How long the aggregator keeps what it knows of a job: as its threat model says, longer under a legal hold.

A job expires as a whole, once it has ended and ``retention.evidence_days`` have passed since. Its models,
messages and answers go. Its row, its rounds' numbers and their openings stay, so that no name, number or
opening is ever used again; so does the furthest manifest of each silo's ledger, against rollbacks. The log's
tree stays as it is: of the entries about the job only what proofs rest on can be read afterwards. Rows and
their log entry go in one transaction, files after it; a crash between the two is made good at the next start.

Shares, seeds and ciphertexts are no evidence: they go with their round, and no hold keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Final

from sqlalchemy import delete, insert, select, update

from aggregator.blob_store import Blobs
from aggregator.job_rows import OPEN_STATES, JobRow, endorsed_charter, job_row, jobs_beyond
from aggregator.store import Reader, Store, Writer
from aggregator.tables import (
    askings,
    attack_results,
    expired_jobs,
    job_holds,
    ledger_heads,
    log_entries,
    messages,
    models,
    readiness,
    rounds,
    turnouts,
)
from policies.loader import load_threat_model
from privacy.errors import Conflict, OutOfOrder
from privacy.ids import Digest, JobId
from privacy.officers import read_body
from privacy.query_terms import EvaluationTerms
from privacy.roster import Charter
from privacy.transparency.leaf import FOLLOWED_BY, Record, parse_record
from privacy.wire.messages import RoundResult
from privacy.wire.upkeep import Expiry, ExpiryRequest, Hold, HoldRequest, KeptJob

_DAY_S: Final = 86_400
_ALL_JOBS: Final = 1_000_000


class Retention:
    """One aggregator's. Touched on one event loop only."""

    def __init__(self, store: Store, models_: Blobs, now: Callable[[], float]) -> None:
        """``now`` is in Unix seconds. Finishes what a crash left."""
        self._store = store
        self._models = models_
        self._now = now
        self._remove_files()

    def hold(self, wanted: HoldRequest, by: str) -> Hold:
        """Keep a job's evidence until the hold is released. The same again is the same.

        Raises:
            NotFound: there is no such job, or it has expired. Conflict: it is held for another reason.
        """
        hold = Hold(job=wanted.job, reason=wanted.reason, by=by, at=int(self._now()))
        with self._store.write() as transaction:
            assert_not_expired(transaction, job_row(transaction, JobId(wanted.job)).job)
            before = {one.job: one for one in holds_in(transaction)}.get(wanted.job)
            if before is not None and before.reason == wanted.reason:
                return before
            if before is not None:
                raise Conflict(f"{wanted.job}: it is held already since {before.at}: {before.reason}")
            transaction.connection.execute(insert(job_holds).values(hold.model_dump()))
            transaction.record("job_held", job=hold.job, reason=hold.reason, person=by)
        return hold

    def release(self, job: JobId, by: str) -> None:
        """End a hold; nothing is deleted by that. Doing it twice is once.

        Raises:
            NotFound: there is no such job.
        """
        with self._store.write() as transaction:
            job_row(transaction, job)
            if job not in {one.job for one in holds_in(transaction)}:
                return
            transaction.connection.execute(delete(job_holds).where(job_holds.c.job == job))
            transaction.record("hold_released", job=job, person=by)

    def holds(self) -> tuple[Hold, ...]:
        """Those that stand, by job."""
        with self._store.read() as view:
            return holds_in(view)

    def expire(self, wanted: ExpiryRequest, by: str) -> Expiry:
        """Delete what there is of each ended job that is old enough, unless

        (1) it is under a legal hold; (2) its own threat model keeps it longer; (3) the log does not say when
        it ended; (4) a server has yet to confirm that the shares of a round of it are gone. Each job goes in
        a transaction of its own.
        """
        now = int(self._now())
        with self._store.read() as view:
            gone = _expired(view)
            ends = _ends(self._store, view)
            asked = [
                job
                for _, job in jobs_beyond(view, 0, _ALL_JOBS)
                if job.state not in OPEN_STATES
                and job.job not in gone
                and now - ends.get(job.job, 0) >= wanted.older_than_days * _DAY_S
            ]
            judged = {job.job: _kept(view, job, ends.get(job.job), now) for job in asked}
        kept = {name: why for name, why in judged.items() if why is not None}
        going = [job for job in asked if job.job not in kept]
        if not wanted.dry_run:
            for job in going:
                self._expire(job, by, now)
            self._remove_files()
        return Expiry(
            dry_run=wanted.dry_run,
            expired=tuple(job.job for job in going),
            kept=tuple(kept[name] for name in sorted(kept)),
        )

    def _expire(self, job: JobRow, by: str, now: int) -> None:
        with self._store.write() as transaction:
            connection = transaction.connection
            contexts = _contexts(transaction, job.job)
            needed = _models_of_others(transaction, job.job)
            going = sorted(_models_of(transaction, job) - needed)
            pinned = set(connection.execute(select(ledger_heads.c.ctx)).scalars())
            for ctx in contexts - pinned:
                connection.execute(delete(messages).where(messages.c.ctx == ctx))
            for table in (readiness, askings, attack_results):
                connection.execute(delete(table).where(table.c.job == job.spec.digest))
            connection.execute(delete(turnouts).where(turnouts.c.job == job.job))
            for digest in going:
                connection.execute(delete(models).where(models.c.digest == digest))
            redacted = _redact(self._store, transaction, job.job, contexts)
            row = {"job": job.job, "at": now, "files_left": json.dumps(going)}
            connection.execute(insert(expired_jobs).values(row))
            transaction.record(
                "job_expired", job=job.job, person=by, rounds=len(contexts), models=going, redacted=redacted
            )

    def _remove_files(self) -> None:
        """Delete the files of models whose rows are gone. One that was uploaded again since has a row."""
        with self._store.read() as view:
            query = select(expired_jobs).where(expired_jobs.c.files_left != "[]")
            left = {row.job: json.loads(row.files_left) for row in view.connection.execute(query)}
            wanted = set(view.connection.execute(select(models.c.digest)).scalars())
        if not left:
            return
        for digest in {one for digests in left.values() for one in digests} - wanted:
            self._models.scrub(digest)
        with self._store.write() as transaction:
            done = update(expired_jobs).where(expired_jobs.c.job.in_(left)).values(files_left="[]")
            transaction.connection.execute(done)


def holds_in(view: Reader) -> tuple[Hold, ...]:
    """Legal holds that stand, by job."""
    rows = view.connection.execute(select(job_holds).order_by(job_holds.c.job))
    return tuple(Hold(job=row.job, reason=row.reason, by=row.by, at=row.at) for row in rows)


def assert_not_expired(view: Reader, job: JobId) -> None:
    """Refuse to answer from what is left of a job.

    Raises:
        OutOfOrder: it has expired.
    """
    if job in _expired(view):
        raise OutOfOrder(f"job {job}: its evidence was deleted when its time was over; see packs of it")


def _expired(view: Reader) -> frozenset[str]:
    return frozenset(view.connection.execute(select(expired_jobs.c.job)).scalars())


def _kept(view: Reader, job: JobRow, ended_at: int | None, now: int) -> KeptJob | None:
    # (3)
    if ended_at is None:
        why = "the log does not say when it ended"
        return KeptJob(job=job.job, rule="evidence.no_end", why=why)
    # (1)
    hold = {one.job: one for one in holds_in(view)}.get(job.job)
    if hold is not None:
        why = f"held since {hold.at}: {hold.reason}; sealsum aggregator release {job.job} ends that"
        return KeptJob(job=job.job, rule="evidence.legal_hold", why=why)
    # (2)
    days = _evidence_days(view, job)
    if days is None:
        why = "the charter that it ran under is not here, so nothing says how long it must be kept"
        return KeptJob(job=job.job, rule="evidence.no_charter", why=why)
    if now < ended_at + days * _DAY_S:
        why = f"its threat model keeps it for {days} days, {(now - ended_at) // _DAY_S} have passed"
        return KeptJob(job=job.job, rule="evidence.retention", why=why)
    # (4)
    left = select(rounds.c.ctx).where(rounds.c.job == job.job, rounds.c.scrubbed.is_(False)).limit(1)
    if view.connection.execute(left).one_or_none() is not None:
        why = "a server has not confirmed yet that it deleted the shares of a round"
        return KeptJob(job=job.job, rule="evidence.shares_left", why=why)
    return None


def _evidence_days(view: Reader, job: JobRow) -> int | None:
    endorsed = endorsed_charter(view, job.spec.charter)
    if endorsed is None:
        return None
    charter = read_body(endorsed.charter, Charter)
    policy = load_threat_model(charter.policy_text, charter.policy_parents)
    return policy.model.spec.retention.evidence_days


def _contexts(view: Reader, job: str) -> frozenset[str]:
    return frozenset(view.connection.execute(select(rounds.c.ctx).where(rounds.c.job == job)).scalars())


def _models_of(view: Reader, job: JobRow) -> set[Digest]:
    """Models that a job began with, asked about, or came to."""
    found = {Digest(job.model), Digest(job.spec.initial_model)}
    if isinstance(job.spec.query, EvaluationTerms):
        found.add(Digest(job.spec.query.weights))
    for answers in view.messages_of_job(job.job, "result").values():
        for envelope in answers.values():
            result = RoundResult.model_validate_json(envelope.body)
            found |= {Digest(one) for one in (result.model_out,) if one is not None}
    return found


def _models_of_others(view: Reader, job: JobId) -> set[Digest]:
    gone = _expired(view)
    others = [row for _, row in jobs_beyond(view, 0, _ALL_JOBS) if row.job != job and row.job not in gone]
    return {digest for row in others for digest in _models_of(view, row)}


def _records(store: Store, view: Reader) -> Iterable[Record]:
    return (parse_record(line) for line in store.log.lines(view.connection))


def _ends(store: Store, view: Reader) -> dict[str, int]:
    """When each job ended, by the log."""
    return {
        str(one.body["job"]): _unix(one.at)
        for one in _records(store, view)
        if one.kind == "job_ended" and "job" in one.body
    }


def _unix(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp())


def _redact(store: Store, transaction: Writer, job: str, contexts: Collection[str]) -> int:
    """Leave of each entry about the job what verifiers need; returns how many entries lost something."""
    changed = 0
    about = [
        one
        for one in _records(store, transaction)
        if one.body.get("job") == job or one.body.get("context") in contexts
    ]
    for record in about:
        if record.body.keys() <= FOLLOWED_BY:
            continue
        line = record.redact(FOLLOWED_BY).line()
        stored = update(log_entries).where(log_entries.c.seq == record.seq).values(line=line)
        transaction.connection.execute(stored)
        changed += 1
    return changed
