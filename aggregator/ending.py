"""How a round ends: one signed result, stored with phase, model, job and log entry at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from aggregator.desk_rows import forget_desk
from aggregator.job_rows import JobRow, add_model, change_job, job_row
from aggregator.key_rows import forget_keys
from aggregator.round import Round
from aggregator.state import AggregatorState, OpenRound
from aggregator.store import Writer
from aggregator.turnout import endings
from privacy.ids import Digest, JobId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.vectors import VectorName
from privacy.update import FLOAT_BYTES
from privacy.wire.messages import Refusal, RoundResult

REASON_LENGTH = 500
JobEnd = Literal["running", "finished", "failed"]


def publish(
    state: AggregatorState,
    round_: Round,
    survivors: tuple[SiloId, ...],
    model_out: Digest,
    further: Mapping[VectorName, tuple[float, ...]],
    duration_ms: int,
) -> None:
    """End a round whose sum was opened: its model becomes the job's latest."""
    plan = round_.plan
    phase = round_.step("publish")
    job_state: JobEnd = "finished" if plan.round == plan.rounds else "running"
    result = RoundResult(
        outcome="opened",
        reason=f"{len(survivors)} of {len(plan.cohort)} silos in the sum",
        survivors=survivors,
        model_in=plan.model,
        model_out=model_out,
        openings=1,
        job_state=job_state,
        further=dict(further),
    )
    with state.store.write() as transaction:
        size = FLOAT_BYTES * plan.parameters
        forget_desk(transaction, plan)
        add_model(transaction, model_out, plan.architecture, size, published=True)
        transaction.add_message(plan.context, state.me, state.sign(result, "result", plan.context))
        transaction.set_phase(plan.context, phase, duration_ms=duration_ms)
        _turn_out(state, transaction, plan, survivors, survivors, blamed=True)
        transaction.record("model_published", context=plan.context, job=plan.job, model=model_out)
        change_job(transaction, plan.job, state=job_state, model=model_out, aborts=0, reason="")
        if job_state != "running":
            _end_job(transaction, plan.job, plan.job_digest, job_state, "")
    _after(state, plan.job_digest, job_state)


def abort(
    state: AggregatorState,
    round_: Round,
    reason: str,
    *,
    aborts_max: int,
    answers: OpenRound | None = None,
    duration_ms: int = 0,
    blamed: bool = True,
) -> None:
    """End a round without a model. ``blamed`` is false where we stopped it ourselves: that does not
    count towards the aborts in a row that fail a job.

    The opening may have been used up all the same; the result says so. ``answers`` holds what silos sent
    that is not stored yet.
    """
    plan = round_.plan
    collected = round_.phase != "collecting"
    phase = round_.step("give_up")
    reason = _one_line(reason)
    with state.store.write() as transaction:
        if answers is not None:
            answers.store_answers(transaction)
        forget_desk(transaction, plan)
        job = job_row(transaction, plan.job)
        aborts = job.aborts + int(blamed)
        job_state, why = _after_abort(job, plan, aborts, aborts_max, reason)
        result = RoundResult(
            outcome="aborted",
            reason=reason,
            survivors=(),
            model_in=plan.model,
            model_out=None,
            openings=0 if transaction.opening(plan.context) is None else 1,
            job_state=job_state,
        )
        transaction.add_message(plan.context, state.me, state.sign(result, "result", plan.context))
        transaction.set_phase(plan.context, phase, duration_ms=duration_ms)
        # Silence tells of a silo only where its round was played to the end of what it could answer in.
        waited = blamed and collected and answers is not None
        _turn_out(state, transaction, plan, (), round_.answers, blamed=waited)
        transaction.record("round_aborted", context=plan.context, job=plan.job, reason=reason)
        change_job(transaction, plan.job, state=job_state, aborts=aborts, reason=why)
        if job_state != "running":
            _end_job(transaction, plan.job, plan.job_digest, job_state, why)
    _after(state, plan.job_digest, job_state)


def fail_job(state: AggregatorState, job: JobRow, reason: str) -> None:
    """End a job between rounds."""
    reason = _one_line(reason)
    with state.store.write() as transaction:
        change_job(transaction, job.job, state="failed", reason=reason)
        _end_job(transaction, job.job, job.spec.digest, "failed", reason)
    _after(state, job.spec.digest, "failed")


def _turn_out(
    state: AggregatorState,
    transaction: Writer,
    plan: RoundPlan,
    survivors: Collection[SiloId],
    answered: Collection[SiloId],
    *,
    blamed: bool,
) -> None:
    """Count what the round's end means for each silo of its cohort."""
    refusals: dict[SiloId, str] = {}
    if len(survivors) < len(plan.cohort):
        refusals = {
            SiloId(silo): Refusal.model_validate_json(envelope.body).rule
            for silo, envelope in transaction.messages(plan.context, "refusal").items()
        }
    ended = endings(plan.silos, survivors=survivors, answered=answered, refusals=refusals, blamed=blamed)
    state.turnouts.ended(transaction, plan, ended, opened=bool(survivors))


def _end_job(transaction: Writer, job: JobId, digest: Digest, job_state: JobEnd, reason: str) -> None:
    """The log says so, and what silos sealed to each other for this job goes."""
    transaction.record("job_ended", job=job, state=job_state, reason=reason)
    forget_keys(transaction, digest)


def _after(state: AggregatorState, digest: Digest, job_state: JobEnd) -> None:
    if job_state != "running":
        state.optimizers.forget_job(digest)
        state.readiness.forget(digest)
    state.bell.ring()


def _one_line(reason: str) -> str:
    """Words that may quote another party, fit for a log and for any database (PostgreSQL takes no NUL)."""
    printable = "".join(character if character.isprintable() else " " for character in reason)
    return " ".join(printable.split())[:REASON_LENGTH]


def _after_abort(
    job: JobRow, plan: RoundPlan, aborts: int, aborts_max: int, reason: str
) -> tuple[JobEnd, str]:
    """An aborted round has used its number and its budget, so the last number ends the job either way."""
    if aborts >= aborts_max:
        return "failed", f"{aborts} rounds in a row were aborted; the last one because: {reason}"
    if plan.round < plan.rounds:
        return "running", f"round {plan.round} was aborted: {reason}"
    if job.model == job.spec.initial_model:
        return "failed", f"no round was opened; the last one was aborted: {reason}"
    return "finished", f"the last round was aborted, the model is an earlier one: {reason}"
