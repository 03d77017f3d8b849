"""What a round's desk has taken, on disk: a restart opens the same steps with the same answers.

A step's answers are there before their sender is told that they were taken, and its closing before anything
that follows from it leaves. What a step's messages could open is the reason why some are never written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from aggregator.statements import (
    ADD_DESK_ANSWER,
    CLOSE_DESK_STEP,
    DESK_ANSWERS,
    DESK_STEPS,
    FORGET_DESK_ANSWERS,
    FORGET_DESK_STEPS,
)
from aggregator.store import Reader, Store, Writer, unix_ms
from privacy.canonical import canonical_bytes
from privacy.ids import Context, PartyId, SiloId
from privacy.plan import RoundPlan
from privacy.wire.envelope import Envelope, parse_envelopes


@dataclass(frozen=True)
class KeptDesk:
    """One round's steps as they were kept."""

    answers: Mapping[str, Mapping[SiloId, tuple[Envelope, ...]]]
    closed: Mapping[str, int]
    """When each closed step did, in Unix milliseconds."""


class DeskJournal:
    """Writes what one round's desk takes."""

    def __init__(self, store: Store, ctx: Context, never: Collection[str]) -> None:
        """``never``: steps whose messages stay in memory."""
        self._store = store
        self._ctx = ctx
        self._never = never

    def answered(self, step: str, silo: SiloId, messages: Sequence[Envelope]) -> None:
        """A silo's messages were believed."""
        if step in self._never:
            return
        raw = canonical_bytes([one.model_dump(mode="json") for one in messages])
        row = {"ctx": self._ctx, "step": step, "silo": silo, "envelopes": raw}
        with self._store.write() as transaction:
            transaction.connection.execute(ADD_DESK_ANSWER, row)

    def closed(self, step: str) -> None:
        """No more messages of a step are taken."""
        if step in self._never:
            return
        with self._store.write() as transaction:
            transaction.connection.execute(
                CLOSE_DESK_STEP, {"ctx": self._ctx, "step": step, "closed_at": unix_ms()}
            )


def kept_desk(view: Reader, ctx: Context) -> KeptDesk:
    """What an earlier process took in a round that is still open."""
    answers: dict[str, dict[SiloId, tuple[Envelope, ...]]] = {}
    for row in view.connection.execute(DESK_ANSWERS, {"ctx": ctx}):
        answers.setdefault(row.step, {})[SiloId(PartyId(row.silo))] = parse_envelopes(row.envelopes)
    closed = {row.step: int(row.closed_at) for row in view.connection.execute(DESK_STEPS, {"ctx": ctx})}
    return KeptDesk(answers, closed)


def forget_desk(transaction: Writer, plan: RoundPlan) -> None:
    """The round is over: what silos said on the way goes, and its evidence is in other rows."""
    if plan.servers and plan.validity is None:
        return  # these rounds have no steps
    for statement in (FORGET_DESK_ANSWERS, FORGET_DESK_STEPS):
        transaction.connection.execute(statement, {"ctx": plan.context})
