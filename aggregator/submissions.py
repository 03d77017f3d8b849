"""What members bring to the aggregator: jobs, a silo's manifest or refusal. Knows no HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from aggregator.job_rows import (
    add_job,
    job_row,
    job_version,
    model_row,
    open_jobs,
)
from aggregator.job_view import JobViews
from aggregator.received import open_from, open_job, open_manifest
from aggregator.round import Answer
from aggregator.schemes.flow import admit_submission
from aggregator.state import AggregatorState, Noted, OpenRound, over_or_coming_back
from aggregator.store import Reader as View
from privacy.errors import Conflict, NotAllowed, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, JobId, PartyId, SiloId
from privacy.plan import JobSpec, ModelTerms
from privacy.query_terms import EvaluationTerms
from privacy.update import FLOAT_BYTES
from privacy.wire.envelope import Envelope
from privacy.wire.messages import Refusal

OPEN_JOBS_MAX = 100
"""Of one researcher. Every silo stores and judges every open job, so one of them could busy all."""


class Submissions:
    """The aggregator's intake and the answers to its readers."""

    def __init__(self, state: AggregatorState) -> None:
        self._state = state
        self._views = JobViews()

    async def submit_job(self, researcher: PartyId, envelope: Envelope) -> tuple[JobId, bool]:
        """Queue a job; the flag says whether it is new. Checks, in this order:

        (1) that researcher signed it, under this very charter; (2) it is for this federation; (3) its
        initial model, and one that it evaluates, is here, of its architecture and length, and finite;
        (4) it is here already, or she has room in the queue: every silo judges every open job.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: (1). Unprocessable: (2), (3).
            OutOfOrder: (4). Conflict: another job has this name.
        """
        charter = self._state.held.charter
        # (1)
        job = open_job(charter, envelope)
        if job.sender != researcher:
            raise NotAllowed(f"job.sender: expected {researcher} (the certificate's party), got {job.sender}")
        spec = job.message
        # (2)
        if spec.federation != charter.federation or spec.charter != charter.digest:
            raise Unprocessable(f"job.charter: expected {charter.digest[:16]}… of {charter.federation}")
        # (3)
        await asyncio.to_thread(self._check_models, spec)
        with self._state.store.write() as transaction:
            new = add_job(transaction, spec.job, envelope, spec.initial_model)
            if new:
                # (4)
                hers = sum(row.envelope.sender == researcher for _, row in open_jobs(transaction))
                if hers > OPEN_JOBS_MAX:
                    raise OutOfOrder(
                        f"job {spec.job}: expected at most {OPEN_JOBS_MAX} open jobs of {researcher}; "
                        "submit it when one of them has ended"
                    )
                self._state.readiness.ask(transaction, spec.digest)
                transaction.record(
                    "job_accepted",
                    job=spec.job,
                    digest=spec.digest,
                    researcher=researcher,
                    rounds=spec.rounds,
                )
        if new:
            self._state.readiness.queued(self._state.store, spec.digest)
        self._state.bell.ring()
        return spec.job, new

    async def watch_job(
        self, job: JobId, after: int, seconds: float, beyond: int = 0
    ) -> dict[str, Any] | None:
        """The job's view once its version exceeds ``after``; ``None`` when the time is up. Rounds up to
        ``beyond`` are left out: a watcher knows them, and is not told all of them with each new one.

        Raises:
            NotFound: no such job.
        """

        def changed() -> dict[str, Any] | None:
            with self._state.store.read() as view:
                # Every ring asks again, so the cheap question comes first.
                return self._view(view, job, beyond) if job_version(view, job) > after else None

        return await self._state.bell.wait_for(changed, seconds)

    def _view(self, view: View, job: JobId, beyond: int) -> dict[str, Any]:
        row = job_row(view, job)
        asked = self._state.readiness.view_of(row.spec, self._state.held.charter, self._state.held.policy)
        turnout = self._state.turnouts.told(view, row)
        shown = self._views.of(view, row, beyond)
        reason = row.reason or self._state.maintenance.why_waiting(row)
        return {**shown, "reason": reason, "readiness": asked, "turnout": turnout}

    async def next_offer(
        self, silo: SiloId, after: str, seconds: float, seen: int | None = None
    ) -> Envelope | None:
        """The open round's offer, if it invites this silo, is not ``after`` and can still be joined by it.

        None at once where the queue has other jobs than those up to ``seen``, which the silo should look at.
        """

        def inviting() -> Envelope | None:
            current = self._state.current
            if current is None or current.ctx == after or current.round.phase != "collecting":
                return None
            if current.desk.went_on_without(silo):
                return None
            waiting = silo in current.round.plan.silos and silo not in current.round.answers
            return current.offer if waiting else None

        def answer() -> Envelope | bool | None:
            news = seen is not None and self._state.readiness.newest > seen
            return inviting() or (news or None)

        with self._state.presence.call(silo):
            found = await self._state.bell.wait_for(answer, seconds)
        return found if isinstance(found, Envelope) else None

    async def wait_result(self, reader: PartyId, ctx: Context, seconds: float) -> Envelope | None:
        """The signed result of a round, or ``None`` while it is open.

        Raises:
            NotFound: no such round.
        """

        def ended() -> Envelope | None:
            if self._state.current is not None and self._state.current.ctx == ctx:
                return None
            with self._state.store.read() as view:
                view.phase(ctx)
                return view.message(ctx, "result", self._state.me)

        with self._state.presence.call(reader):
            return await self._state.bell.wait_for(ended, seconds)

    def accept_manifest(self, silo: SiloId, ctx: Context, envelope: Envelope) -> None:
        """Note a silo's signed claim to be in the sum.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: not this silo's for this round.
            Conflict: it has sent another one. OutOfOrder: too late. PolicyRefusal: the submission gate.
        """
        if self._known(silo, ctx, envelope):
            return
        current = self._open_round(ctx)
        manifest = open_manifest(self._state.held.charter, current.round.plan, silo, envelope)
        current.round.check_answer(silo, "manifest")
        update = admit_submission(self._state, current, manifest)
        self._answered(
            current, silo, "manifest", Noted(silo, envelope, {"manifest": update.manifest_digest}, manifest)
        )

    def accept_refusal(self, silo: SiloId, ctx: Context, envelope: Envelope) -> None:
        """Note that a silo takes no part, in its own public words.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: not this silo's for this round.
            Conflict: it has sent another one. OutOfOrder: too late. Unprocessable: in another's name.
        """
        if self._known(silo, ctx, envelope):
            return
        current = self._open_round(ctx)
        refusal = open_from(self._state.held.charter, [silo], envelope, Refusal, "refusal", current.ctx)
        if refusal.message.silo != silo:
            raise Unprocessable(f"refusal.silo: expected {silo}, got {refusal.message.silo}")
        current.round.check_answer(silo, "refusal")
        rule = refusal.message.rule
        # At once: nobody else knows of it, and a restart would wait for this silo.
        with self._state.store.write() as transaction:
            if transaction.add_message(current.ctx, silo, envelope):
                transaction.record("silo_refused", context=current.ctx, silo=silo, rule=rule)
        self._answered(current, silo, "refusal", Noted(silo, envelope, {"rule": rule}))

    def _known(self, silo: SiloId, ctx: Context, envelope: Envelope) -> bool:
        """Whether the very same message came before: a lost answer is given again, in any phase.

        Raises:
            Conflict: another one of this kind came first. NotFound: no such round.
        """
        current = self._state.current
        if current is not None and current.ctx == ctx:
            noted = current.noted.get((envelope.kind, silo))
            if noted is not None and noted.envelope != envelope:
                raise Conflict(f"{envelope.kind} of {silo}: another one came first; the first one holds")
            return noted is not None
        with self._state.store.read() as view:
            view.phase(ctx)
            return view.message(ctx, envelope.kind, silo) == envelope

    def _open_round(self, ctx: Context) -> OpenRound:
        current = self._state.current
        if current is None or current.ctx != ctx:
            raise over_or_coming_back(self._state, ctx)
        return current

    def _answered(self, current: OpenRound, silo: SiloId, answer: Answer, noted: Noted) -> None:
        """Note an answer. A manifest is stored with the next phase: until then the share servers have it."""
        with self._state.presence.call(silo):
            current.round.answered(silo, answer)
        current.noted[noted.envelope.kind, silo] = noted
        self._state.bell.ring()

    def _check_models(self, spec: JobSpec) -> None:
        self._check_model("job.initial_model", spec.model, spec.initial_model)
        if isinstance(spec.query, EvaluationTerms):
            self._check_model("job.query.weights", spec.query.model, spec.query.weights)

    def _check_model(self, field: str, terms: ModelTerms, digest: Digest) -> None:
        with self._state.store.read() as view:
            row = model_row(view, digest)
        if row is None or row.architecture != terms.architecture:
            raise Unprocessable(f"{field}: expected a model of this architecture that was uploaded before")
        expected = FLOAT_BYTES * terms.parameters
        if row.size != expected:
            raise Unprocessable(f"{field}: expected {expected} bytes, got {row.size}")
        for chunk in self._state.models.chunks(digest):
            if not np.all(np.isfinite(np.frombuffer(chunk, dtype="<f4"))):
                raise Unprocessable(f"{field}: expected finite parameters")
