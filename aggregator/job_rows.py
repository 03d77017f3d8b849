"""The aggregator's rows of jobs and models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from sqlalchemy import Row, func, insert, select, update

from aggregator.statements import JOB_ROUNDS
from aggregator.store import Reader, Writer, stored_envelope
from aggregator.tables import charters, jobs, models
from privacy.canonical import canonical_bytes
from privacy.errors import Conflict, NotFound
from privacy.ids import Digest, JobId, PartyId
from privacy.plan import JobSpec
from privacy.wire.charter import EndorsedCharter
from privacy.wire.envelope import Envelope
from privacy.wire.messages import Refusal

JobState = Literal["waiting", "running", "finished", "failed"]
OPEN_STATES: tuple[JobState, ...] = ("waiting", "running")


@dataclass(frozen=True)
class JobRow:
    """One job as stored; the envelope was verified before it was kept."""

    job: JobId
    envelope: Envelope
    spec: JobSpec
    state: JobState
    reason: str
    version: int
    round: int
    aborts: int
    model: Digest


def add_job(transaction: Writer, job: JobId, envelope: Envelope, initial_model: Digest) -> bool:
    """Queue a job; False if this very job is here already.

    Raises:
        Conflict: another job has this name.
    """
    raw = canonical_bytes(envelope)
    row = {
        "job": job,
        "envelope": raw,
        "state": "waiting",
        "reason": "",
        "version": 1,
        "round": 0,
        "aborts": 0,
        "model": initial_model,
    }
    known = transaction.connection.execute(
        select(jobs.c.envelope).where(jobs.c.job == job)
    ).scalar_one_or_none()
    if known is not None:
        if known != raw:
            raise Conflict(f"job {job}: another one has this name; choose a new one")
        return False
    transaction.connection.execute(insert(jobs).values(row))
    return True


def job_row(view: Reader, job: JobId) -> JobRow:
    """One job.

    Raises:
        NotFound: there is none of that name.
    """
    row = view.connection.execute(select(jobs).where(jobs.c.job == job)).one_or_none()
    if row is None:
        raise NotFound(f"job {job}: there is none of that name")
    return _job(row)


def job_version(view: Reader, job: JobId) -> int:
    """How often a job has changed.

    Raises:
        NotFound: there is none of that name.
    """
    version = view.connection.execute(select(jobs.c.version).where(jobs.c.job == job)).scalar_one_or_none()
    if version is None:
        raise NotFound(f"job {job}: there is none of that name")
    return int(version)


def open_jobs(view: Reader, after: int = 0) -> Iterator[tuple[int, JobRow]]:
    """The jobs that have not ended, beyond a position of the queue, with their positions, in order."""
    query = select(jobs).where(jobs.c.state.in_(OPEN_STATES), jobs.c.position > after)
    for row in view.connection.execute(query.order_by(jobs.c.position)):
        yield row.position, _job(row)


def jobs_beyond(view: Reader, position: int, most: int) -> list[tuple[int, JobRow]]:
    """Jobs beyond a position of the queue, open or not, with their positions, in order."""
    query = select(jobs).where(jobs.c.position > position).order_by(jobs.c.position).limit(most)
    return [(row.position, _job(row)) for row in view.connection.execute(query)]


def newest_job(view: Reader) -> int:
    """Position in the queue of the last job, open or not; 0 where there is none."""
    return int(view.connection.execute(select(func.max(jobs.c.position))).scalar_one_or_none() or 0)


def open_job_digests(view: Reader) -> set[Digest]:
    """Of the jobs that have not ended."""
    return {job.spec.digest for _, job in open_jobs(view)}


def change_job(transaction: Writer, job: JobId, **columns: Any) -> None:
    """Change a job and its version, which wakes whoever watches it."""
    changed = update(jobs).where(jobs.c.job == job).values(version=jobs.c.version + 1, **columns)
    transaction.connection.execute(changed)


def add_model(
    transaction: Writer, digest: Digest, architecture: Digest, size: int, *, published: bool
) -> None:
    """Register a model whose file is in place; again is the same."""
    if model_row(transaction, digest) is None:
        row = {"digest": digest, "architecture": architecture, "size": size, "published": published}
        transaction.connection.execute(insert(models).values(row))


def model_row(view: Reader, digest: Digest) -> Row[Any] | None:
    """A model's ``architecture``, ``size`` and whether it was ``published``, if it is here."""
    return view.connection.execute(select(models).where(models.c.digest == digest)).one_or_none()


def model_bytes_held(view: Reader) -> int:
    """Bytes of all models here."""
    return int(view.connection.execute(select(func.coalesce(func.sum(models.c.size), 0))).scalar_one())


def is_final_model(view: Reader, digest: Digest) -> bool:
    """Whether a finished job ended with this model."""
    query = select(jobs.c.job).where(jobs.c.model == digest, jobs.c.state == "finished").limit(1)
    return view.connection.execute(query).scalar_one_or_none() is not None


def finished_with(view: Reader, digest: Digest) -> list[JobRow]:
    """Finished jobs that ended with this model."""
    query = select(jobs).where(jobs.c.model == digest, jobs.c.state == "finished")
    return [_job(row) for row in view.connection.execute(query.order_by(jobs.c.position))]


def keep_charter(transaction: Writer, charter: Digest, endorsed: EndorsedCharter) -> None:
    """Remember a charter for good: jobs accepted under it are proved by it when a later one is in force."""
    if endorsed_charter(transaction, charter) is None:
        row = {"digest": charter, "envelope": canonical_bytes(endorsed)}
        transaction.connection.execute(insert(charters).values(row))


def endorsed_charter(view: Reader, charter: Digest) -> EndorsedCharter | None:
    """A charter under which this server has run, as its officers endorsed it."""
    query = select(charters.c.envelope).where(charters.c.digest == charter)
    raw = view.connection.execute(query).scalar_one_or_none()
    return None if raw is None else EndorsedCharter.model_validate_json(raw)


def rounds_of(view: Reader, job: JobId, after: int = 0) -> list[Row[Any]]:
    """A job's rounds beyond number ``after``, in order."""
    return list(view.connection.execute(JOB_ROUNDS, {"job": job, "after": after}).all())


def budget_refusers(view: Reader, job: JobId) -> frozenset[PartyId]:
    """Silos whose budget refused a round of this job: they are not asked again in it."""
    return frozenset(
        silo
        for refusals in view.messages_of_job(job, "refusal").values()
        for silo, envelope in refusals.items()
        if "budget" in Refusal.model_validate_json(envelope.body).rule
    )


@lru_cache(maxsize=256)
def _submitted(raw: bytes) -> tuple[Envelope, JobSpec]:
    """A job as it was submitted, from the bytes that were stored then: a job's rounds ask many times."""
    envelope = stored_envelope(raw)
    return envelope, JobSpec.model_validate_json(envelope.body)


def _job(row: Row[Any]) -> JobRow:
    envelope, spec = _submitted(row.envelope)
    return JobRow(
        job=JobId(row.job),
        envelope=envelope,
        spec=spec,
        state=row.state,
        reason=row.reason,
        version=row.version,
        round=row.round,
        aborts=row.aborts,
        model=Digest(row.model),
    )
