"""The aggregator's rows of sealed job keys: the first complete set of a job holds until the job ends."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select

from aggregator.store import Reader, Writer
from aggregator.tables import he_keys
from privacy.canonical import canonical_bytes
from privacy.errors import Conflict
from privacy.ids import Digest, SiloId
from privacy.wire.envelope import Envelope, parse_envelope


def add_keys(transaction: Writer, job: Digest, key: Digest, envelopes: Sequence[Envelope]) -> bool:
    """Keep a job's key, sealed to each silo; False if these very envelopes are here already.

    Raises:
        Conflict: another set came first.
    """
    query = select(he_keys.c.envelope).where(he_keys.c.job == job)
    known = set(transaction.connection.execute(query).scalars())
    raw = {SiloId(envelope.recipient): canonical_bytes(envelope) for envelope in envelopes}
    if known:
        if known != set(raw.values()):
            raise Conflict(f"job {job[:16]}…: another silo's key came first; fetch it and use that one")
        return False
    rows = [{"job": job, "silo": silo, "key": key, "envelope": sealed} for silo, sealed in raw.items()]
    transaction.connection.execute(insert(he_keys).values(rows))
    return True


def sealed_key(view: Reader, job: Digest, silo: SiloId) -> Envelope | None:
    """A job's key as it is sealed to one silo, if there is one."""
    query = select(he_keys.c.envelope).where(he_keys.c.job == job, he_keys.c.silo == silo)
    raw = view.connection.execute(query).scalar_one_or_none()
    return None if raw is None else parse_envelope(raw)


def key_id(view: Reader, job: Digest) -> Digest | None:
    """Public id of a job's key, if there is one."""
    query = select(he_keys.c.key).where(he_keys.c.job == job).limit(1)
    found = view.connection.execute(query).scalar_one_or_none()
    return None if found is None else Digest(found)


def forget_keys(transaction: Writer, job: Digest) -> None:
    """The job is over; SQLite overwrites what it deletes here (``secure_delete``)."""
    transaction.connection.execute(delete(he_keys).where(he_keys.c.job == job))
