"""Taking up a round that was open when the process ended, from what was stored of it. Knows no scheme.

The same plan, so the same cohort and context; what was taken in steps and who refused; what was left of the
deadline, but never so little that silos, which ask again every few seconds, could not find the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from aggregator.desk import Desk
from aggregator.desk_rows import DeskJournal, kept_desk
from aggregator.received import manifest_kind, open_offer
from aggregator.round import Answer, Round
from aggregator.schemes.flow import SchemeFlow
from aggregator.state import AggregatorState, Noted, OpenRound
from aggregator.store import Reader, unix_ms
from aggregator.tables import rounds
from policies.gates import admit_plan
from privacy.errors import NotFound
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import RoundPlan, SchemeName
from privacy.wire.envelope import MessageKind
from privacy.wire.messages import RoundOffer

COME_BACK_S: Final = 20.0
"""At least so long silos have after a restart, unless the plan's whole deadline is shorter."""


@dataclass(frozen=True)
class LeftOpen:
    """A round that neither was published nor aborted."""

    plan: RoundPlan
    phase: str
    began_at: int | None
    """Unix milliseconds; ``None`` of a round of an earlier release."""

    @property
    def elapsed_s(self) -> float:
        """How long ago it began, by a clock that may have been set since; never negative."""
        return 0.0 if self.began_at is None else max(0.0, (unix_ms() - self.began_at) / 1000)


def left_open(view: Reader, me: PartyId) -> list[LeftOpen]:
    """The rounds that a crash left open."""
    query = select(rounds.c.ctx, rounds.c.phase, rounds.c.began_at).where(
        rounds.c.phase.not_in(("published", "aborted"))
    )
    return [
        LeftOpen(plan_of(view, Context(Digest(row.ctx)), me), row.phase, row.began_at)
        for row in view.connection.execute(query)
    ]


def plan_of(view: Reader, ctx: Context, me: PartyId) -> RoundPlan:
    """The plan of a round of ours: verified before it was stored; under a later charter it may not open.

    Raises:
        NotFound: there is no such round.
    """
    offer = view.message(ctx, "offer", me)
    if offer is None:
        raise NotFound(f"round {ctx[:16]}…: there is none under this context here")
    return RoundOffer.model_validate_json(offer.body).plan


def reopen(state: AggregatorState, schemes: Mapping[SchemeName, SchemeFlow], left: LeftOpen) -> OpenRound:
    """The open round as it was stored. Passes our own gate again, which computes ε: run it in a thread.

    Raises:
        PeerFault, PolicyRefusal: under the charter in force now it would not be admitted.
    """
    held, ctx, scheme = state.held, left.plan.context, schemes[left.plan.scheme]
    answers: dict[SiloId, Answer] = {}
    noted: dict[tuple[MessageKind, SiloId], Noted] = {}
    with state.store.read() as view:
        offer = view.messages(ctx, "offer")[state.me]
        desk = kept_desk(view, ctx)
        kinds: dict[MessageKind, Answer] = {manifest_kind(left.plan): "manifest", "refusal": "refusal"}
        for kind, answer in kinds.items():
            for silo, envelope in view.messages(ctx, kind).items():
                answers[SiloId(silo)] = answer
                noted[kind, SiloId(silo)] = Noted(SiloId(silo), envelope, {})
    admitted = admit_plan([held.policy], *open_offer(held.charter, offer), held.charter)
    since = max([left.began_at or 0, *desk.closed.values()])
    journal = DeskJournal(state.store, ctx, scheme.unkept)
    return OpenRound(
        Round(left.plan, answers=answers),
        admitted,
        offer,
        Desk(scheme.steps, journal, desk.answers, desk.closed),
        noted,
        [_seconds_left(left.plan, since)],
    )


def _seconds_left(plan: RoundPlan, since: int) -> float:
    """Of a wait that began at ``since``. A clock that was set back gives no more than the plan does."""
    whole = float(plan.deadline_s)
    elapsed = max(0.0, (unix_ms() - since) / 1000)
    return max(min(COME_BACK_S, whole), whole - elapsed)
