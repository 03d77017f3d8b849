"""What a member sees of a job: ids, digests, reasons and durations only.

A round that has ended never changes, so each is read once while its job runs: the view of round 1000 costs
what that of round 1 does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aggregator.job_rows import OPEN_STATES, JobRow, rounds_of
from aggregator.store import Reader
from privacy.ids import Context, Digest, JobId, PartyId
from privacy.wire.envelope import Envelope
from privacy.wire.messages import Refusal, RoundResult


@dataclass
class _Told:
    """What is known of the rounds of a job that have ended."""

    last: int = 0
    openings: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)


class JobViews:
    """Views of an aggregator's jobs, with a memory of those that run."""

    def __init__(self) -> None:
        self._told: dict[JobId, _Told] = {}

    def of(self, view: Reader, row: JobRow, beyond: int = 0) -> dict[str, Any]:
        """``JobView``, as docs/architecture.md names it; of history and refusals only what is of rounds
        ``beyond`` that number, which its reader knows already."""
        told = self._told.setdefault(row.job, _Told())
        refusals = [*told.refusals, *_read_on(view, row.job, told)]
        if row.state not in OPEN_STATES:
            del self._told[row.job]
        return {
            "version": row.version,
            "job": row.job,
            "state": row.state,
            "round": row.round,
            "rounds": row.spec.rounds,
            "reason": row.reason,
            "openings": told.openings,
            "refusals": [one for one in refusals if one["round"] > beyond],
            "history": _beyond(told.history, beyond),
            "model": row.model,
            "initial_model": row.spec.initial_model,
        }


def _beyond(history: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Those of later rounds; rounds are in order, and the newest are asked for."""
    first = len(history)
    while first and history[first - 1]["round"] > number:
        first -= 1
    return history[first:]


def _read_on(view: Reader, job: JobId, told: _Told) -> list[dict[str, Any]]:
    """Add the rounds that have ended since to ``told``; the refusals of these and of the open round."""
    after = told.last
    of_results = view.messages_of_job(job, "result", after)
    of_refusals = view.messages_of_job(job, "refusal", after)
    found: list[dict[str, Any]] = []
    for stored in rounds_of(view, job, after):
        ctx = Context(Digest(stored.ctx))
        refusals = [_refusal(stored.round, *one) for one in of_refusals.get(ctx, {}).items()]
        found.extend(refusals)
        for envelope in of_results.get(ctx, {}).values():
            result = RoundResult.model_validate_json(envelope.body)
            told.last = stored.round
            told.openings += result.openings
            told.refusals.extend(refusals)
            told.history.append(
                {
                    "round": stored.round,
                    "context": ctx,
                    "outcome": result.outcome,
                    "reason": result.reason,
                    "survivors": list(result.survivors),
                    "further": {name: list(values) for name, values in result.further.items()},
                    "duration_ms": stored.duration_ms,
                }
            )
    return found


def _refusal(number: int, silo: PartyId, envelope: Envelope) -> dict[str, Any]:
    refusal = Refusal.model_validate_json(envelope.body)
    return {"round": number, "silo": silo, "rule": refusal.rule, "sentence": refusal.sentence}
