"""Keys of jobs under ``bfv`` and ``ckks``: sealed from silo to silo, handed on here, closed to this server.

One silo makes a job's key and seals it to each silo of the roster; the first complete set wins. Recipients'
sealing keys are in the charter, which officers signed: this server cannot put another in their place.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.job_rows import OPEN_STATES, job_row
from aggregator.key_rows import add_keys, sealed_key
from aggregator.state import AggregatorState
from privacy.errors import NotAllowed, OutOfOrder, Unprocessable
from privacy.ids import Digest, JobId, SiloId
from privacy.plan import JobSpec
from privacy.secagg.he.messages import WrappedKey
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES
from privacy.secagg.rows import row_of
from privacy.wire.envelope import Envelope, open_envelope
from privacy.wire.messages import MAX_BYTES


class JobKeys:
    """What one silo does with a job's key."""

    def __init__(self, state: AggregatorState) -> None:
        self._state = state

    def take(self, maker: SiloId, job: JobId, envelopes: Sequence[Envelope]) -> bool:
        """Keep a job's key for its silos; False if this very set is here. Checks, in this order:

        (1) the job is not over, its silos share a key, and it is of the charter in force; (2) there is one
        envelope for each silo of the roster, the maker's own among them, and no other; (3) the maker signed
        each, to that silo, under the job's digest; (4) inside, each is of this federation, epoch, job and
        row, and all are of one key id; (5) no other set came first.

        Raises:
            NotFound, OutOfOrder, Unprocessable: (1). Unprocessable: (2), (4). SignatureRejected,
                MalformedMessage, NotAllowed: (3). Conflict: (5).
        """
        charter = self._state.held.charter
        # (1)
        spec = self._open_job(job)
        row = row_of(spec, len(charter.silos))
        # (2)
        if sorted(envelope.recipient for envelope in envelopes) != sorted(charter.silos):
            raise Unprocessable(f"key: expected one envelope for each of {', '.join(charter.silos)}")
        ids = set()
        for envelope in envelopes:
            # (3)
            wrapped = self._open(maker, SiloId(envelope.recipient), envelope, spec.digest)
            # (4)
            use = (wrapped.federation, wrapped.epoch, wrapped.job, wrapped.parameters)
            if use != (charter.federation, charter.epoch, spec.digest, row):
                raise Unprocessable(
                    f"key: expected one of {charter.federation} epoch {charter.epoch}, this job, {row}"
                )
            if (wrapped.maker, wrapped.silo) != (maker, envelope.recipient):
                raise Unprocessable("key: maker or silo is not the envelope's sender or recipient")
            ids.add(wrapped.key)
        if len(ids) != 1:
            raise Unprocessable(f"key: expected one key id in all envelopes, got {len(ids)}")
        key: Digest = ids.pop()
        # (5)
        with self._state.store.write() as transaction:
            new = add_keys(transaction, spec.digest, key, envelopes)
            if new:
                transaction.record("he_key_taken", job=job, maker=maker, key=key, silos=len(envelopes))
        return new

    def sealed_to(self, silo: SiloId, job: JobId) -> Envelope | None:
        """The job's key as its maker sealed it to this silo; ``None`` while there is none.

        Raises:
            NotFound, OutOfOrder, Unprocessable: there is no such job, it is over, or it has no such key.
        """
        spec = self._open_job(job)
        with self._state.store.read() as view:
            return sealed_key(view, spec.digest, silo)

    def _open(self, maker: SiloId, silo: SiloId, envelope: Envelope, job: Digest) -> WrappedKey:
        if envelope.sender != maker:
            raise NotAllowed(
                f"key: expected it from {maker} (the certificate's party), got {envelope.sender}"
            )
        return open_envelope(
            envelope,
            WrappedKey,
            kind="he_key",
            context=job,
            verify_key_of=lambda party: self._state.held.charter.member(party).verify_key,
            recipient=silo,
            max_bytes=MAX_BYTES["he_key"],
        ).message

    def _open_job(self, job: JobId) -> JobSpec:
        with self._state.store.read() as view:
            row = job_row(view, job)
        if row.state not in OPEN_STATES:
            raise OutOfOrder(f"job {job}: it is {row.state}; its key is gone")
        if row.spec.scheme not in ONE_KEY_SCHEMES:
            raise Unprocessable(
                f"job {job}: expected scheme {' or '.join(ONE_KEY_SCHEMES)}, got {row.spec.scheme}"
            )
        if row.spec.charter != self._state.held.charter.digest:
            raise OutOfOrder(f"job {job}: it was signed under another charter; its silos need a new job")
        return row.spec
