"""Results of attacks on jobs: taken from members who vouch for them, and shown to the gate. Knows no HTTP."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import delete, insert, select

from aggregator.job_rows import JobRow, finished_with, job_row
from aggregator.received import open_from
from aggregator.state import AggregatorState
from aggregator.store import Reader, stored_envelope
from aggregator.tables import attack_results
from policies.rules_attacks import Attacked
from privacy.canonical import canonical_bytes
from privacy.errors import NotAllowed, OutOfOrder, PeerFault, Unprocessable
from privacy.ids import Digest, JobId, PartyId
from privacy.roster import Charter
from privacy.wire.attack_results import AttackResult, AttackSubject
from privacy.wire.envelope import Envelope, Verified


class AttackResults:
    """Those of one aggregator's jobs."""

    def __init__(self, state: AggregatorState) -> None:
        self._state = state

    def subject(self, job: JobId) -> AttackSubject:
        """What is to be attacked.

        Raises:
            NotFound: no such job. OutOfOrder: it has not finished.
        """
        with self._state.store.read() as view:
            row = _finished(view, job)
            return AttackSubject(job=row.envelope, model=row.model, results=results_of(view, row.spec.digest))

    def take(self, member: PartyId, job: JobId, envelope: Envelope) -> None:
        """Keep what a member vouches for, in place of what it said before; the same again changes nothing:

        (1) the job has finished; (2) the member signed it, under the job's digest, and did not ask for the
        job; (3) it is of this job and of the model that it ended with.

        Raises:
            NotFound, OutOfOrder: (1). NotAllowed, SignatureRejected, MalformedMessage: (2).
            Unprocessable: (3).
        """
        # (1)
        with self._state.store.read() as view:
            row = _finished(view, job)
            said_before = results_of(view, row.spec.digest)
        # (2)
        opened = open_from(
            self._state.held.charter, [member], envelope, AttackResult, "attack_result", row.spec.digest
        )
        if member == row.envelope.sender:
            raise NotAllowed(f"attack_result of {member}: who asked for the job does not vouch for its model")
        # (3)
        said = opened.message
        if (said.job, said.job_digest, said.model) != (row.job, row.spec.digest, row.model):
            raise Unprocessable(
                f"attack_result: expected it of job {row.job} and model {row.model[:16]}…, got another's"
            )
        if envelope in said_before:
            return
        of = (attack_results.c.job == row.spec.digest, attack_results.c.party == member)
        new = {"job": row.spec.digest, "party": member, "envelope": canonical_bytes(envelope)}
        with self._state.store.write() as transaction:
            transaction.connection.execute(delete(attack_results).where(*of))
            transaction.connection.execute(insert(attack_results).values(new))
            transaction.record(
                "attacks_reported",
                job=row.job,
                party=member,
                suite=said.suite,
                passed=said.passed,
                digest=envelope.body_digest,
            )


def results_of(view: Reader, job: Digest) -> tuple[Envelope, ...]:
    """What members have signed about a job, by its digest, by member."""
    query = select(attack_results.c.envelope).where(attack_results.c.job == job)
    found = view.connection.execute(query.order_by(attack_results.c.party)).scalars()
    return tuple(stored_envelope(raw) for raw in found)


def attacked(state: AggregatorState, view: Reader, model: Digest) -> tuple[Attacked, ...]:
    """Every finished job that ended with a model, and what is vouched for of it.

    What was signed by a key that is in the roster no more, counts no more.
    """
    return tuple(
        Attacked(
            job=job.spec.digest,
            requested_by=job.envelope.sender,
            model=model,
            results=tuple(believed(state.held.charter, job.spec.digest, results_of(view, job.spec.digest))),
            now=datetime.now(UTC),
        )
        for job in finished_with(view, model)
    )


def believed(charter: Charter, job: Digest, envelopes: tuple[Envelope, ...]) -> list[Verified[AttackResult]]:
    """Those that members of this charter signed; who has left, came later or was enrolled anew is none."""
    found = []
    for one in envelopes:
        try:
            opened = open_from(charter, [one.sender], one, AttackResult, "attack_result", job)
        except PeerFault:
            continue
        found.append(opened)
    return found


def _finished(view: Reader, job: JobId) -> JobRow:
    row = job_row(view, job)
    if row.state != "finished":
        raise OutOfOrder(f"job {job}: expected one that has finished, got one that is {row.state}")
    return row
