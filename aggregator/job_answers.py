"""What silos ask and say about jobs before a round: the queue, and their readiness. Knows no HTTP."""

from __future__ import annotations

from aggregator.job_rows import OPEN_STATES, change_job, job_row, jobs_beyond, open_jobs
from aggregator.received import open_from
from aggregator.state import AggregatorState
from privacy.errors import OutOfOrder, Unprocessable
from privacy.ids import JobId, SiloId
from privacy.wire.envelope import Envelope
from privacy.wire.job_list import LISTED_JOBS_MAX, JobList, ListedJob
from privacy.wire.readiness import QUEUE_JOBS_MAX, JobQueue, JobReadiness


class JobAnswers:
    """One aggregator's queue as silos see it, and what they answer."""

    def __init__(self, state: AggregatorState) -> None:
        self._state = state

    def queue(self, after: int) -> JobQueue:
        """The open jobs, and the envelopes of the next few beyond a position.

        A silo whose position lies beyond the newest job has seen another database: it is shown all.
        """
        newest = self._state.readiness.newest
        with self._state.store.read() as view:
            jobs = list(open_jobs(view))
        beyond = [(at, job) for at, job in jobs if at > (after if after <= newest else 0)]
        shown = beyond[:QUEUE_JOBS_MAX]
        return JobQueue(
            last=shown[-1][0] if len(beyond) > len(shown) else newest,
            newest=newest,
            open=tuple(job.spec.digest for _, job in jobs),
            jobs=tuple(job.envelope for _, job in shown),
        )

    def listed(self, beyond: int) -> JobList:
        """Jobs beyond a position, open or not: what people may know of each."""
        with self._state.store.read() as view:
            found = jobs_beyond(view, beyond, LISTED_JOBS_MAX)
        return JobList(
            jobs=tuple(
                ListedJob(
                    position=at,
                    job=row.job,
                    researcher=row.envelope.sender,
                    state=row.state,
                    round=row.round,
                    rounds=row.spec.rounds,
                    dataset=row.spec.dataset,
                    purpose=row.spec.purpose,
                    reason=row.reason or self._state.maintenance.why_waiting(row),
                )
                for at, row in found
            )
        )

    def accept(self, silo: SiloId, job: JobId, envelope: Envelope) -> None:
        """Note where a job stands at a silo; the same again changes nothing. Checks, in this order:

        (1) the job is not over; (2) this silo signed it, under the job's digest; (3) it speaks for itself and
        of this job.

        Raises:
            NotFound, OutOfOrder: (1). NotAllowed, SignatureRejected, MalformedMessage: (2).
            Unprocessable: (3).
        """
        # (1)
        with self._state.store.read() as view:
            row = job_row(view, job)
        if row.state not in OPEN_STATES:
            raise OutOfOrder(f"job {job}: it is {row.state}; nobody waits for an answer any more")
        digest = row.spec.digest
        # (2)
        answer = open_from(self._state.held.charter, [silo], envelope, JobReadiness, "readiness", digest)
        # (3)
        said = answer.message
        if (said.silo, said.job_digest) != (silo, digest):
            raise Unprocessable(f"readiness: expected it of {silo} and job {digest[:16]}…, got another's")
        if self._state.readiness.said(digest, silo) == said:
            return
        counted = self._state.store.refusals.take(f"readiness {silo} {digest}")
        with self._state.store.write() as transaction:
            self._state.readiness.answer(transaction, said, envelope)
            change_job(transaction, job)
            if counted is not None:
                named = {"job": job, "silo": silo, "decision": said.decision, "rule": said.rule}
                transaction.record("silo_ready", **named, **counted)
        self._state.bell.ring()
