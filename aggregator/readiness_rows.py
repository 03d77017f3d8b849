"""The aggregator's rows of silos' answers to jobs: the latest of each, as it was signed."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import delete, insert, select

from aggregator.store import Reader, Writer, stored_envelope
from aggregator.tables import askings, readiness
from privacy.canonical import canonical_bytes
from privacy.ids import Digest
from privacy.wire.envelope import Envelope
from privacy.wire.readiness import JobReadiness


def add_asking(transaction: Writer, job: Digest, until: int) -> None:
    """Note until when silos may answer. The digest is of a job that was not here before."""
    transaction.connection.execute(delete(askings).where(askings.c.job == job))
    transaction.connection.execute(insert(askings).values({"job": job, "until": until}))


def asked_until(view: Reader, job: Digest) -> float | None:
    """Until when silos may answer, in Unix seconds; ``None`` for a job of an earlier release."""
    found = view.connection.execute(select(askings.c.until).where(askings.c.job == job)).scalar_one_or_none()
    return None if found is None else float(found)


def add_answer(transaction: Writer, answer: JobReadiness, envelope: Envelope) -> None:
    """Keep a silo's answer in place of an earlier one."""
    place = (readiness.c.job == answer.job_digest, readiness.c.silo == answer.silo)
    transaction.connection.execute(delete(readiness).where(*place))
    row = {"job": answer.job_digest, "silo": answer.silo, "envelope": canonical_bytes(envelope)}
    transaction.connection.execute(insert(readiness).values(row))


def answers_to(view: Reader, job: Digest) -> Iterator[JobReadiness]:
    """What silos last said of a job; each was verified before it was kept."""
    for raw in view.connection.execute(select(readiness.c.envelope).where(readiness.c.job == job)).scalars():
        yield JobReadiness.model_validate_json(stored_envelope(raw).body)
