"""What the aggregator's web routes and its round loop share: keys, charter, store, and the one open round."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel

from aggregator.blob_store import Blobs
from aggregator.desk import Desk
from aggregator.held_charter import HeldCharter
from aggregator.ledger_heads import witness
from aggregator.maintenance import Maintenance
from aggregator.not_now import ComingBack
from aggregator.presence import Bell, Presence
from aggregator.readiness import Readiness
from aggregator.round import Round
from aggregator.server_memory import ServerMemory
from aggregator.store import Store, Writer
from aggregator.succession import Succession
from aggregator.turnouts import Turnouts
from aggregator.witnesses import Witnesses
from policies.gates import AdmittedPlan
from policies.rules_submission import Manifest
from privacy.errors import OutOfOrder, SealsumError
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.keystore import Identity
from privacy.wire.envelope import Envelope, MessageKind, Verified, sign_message


@dataclass(frozen=True)
class Noted:
    """A silo's answer that is believed and not stored yet."""

    silo: SiloId
    envelope: Envelope
    logged: dict[str, str]
    """What its log entry says besides the round and the silo."""
    manifest: Verified[Manifest] | None = None
    """What it is, where it is no refusal: its ledger's head is kept."""


@dataclass(frozen=True)
class OpenRound:
    """The round that silos may take part in now."""

    round: Round
    admitted: AdmittedPlan
    offer: Envelope
    desk: Desk = field(default_factory=Desk)
    noted: dict[tuple[MessageKind, SiloId], Noted] = field(default_factory=dict)
    interrupted: list[float] = field(default_factory=list)
    """After a restart: seconds left of the wait that it interrupted, until that wait has begun again."""

    def seconds_left(self) -> float:
        """How long the wait that begins now may last."""
        return self.interrupted.pop() if self.interrupted else float(self.round.plan.deadline_s)

    def store_answers(self, transaction: Writer) -> None:
        """Write what was noted, with its log entries, in the transaction of the round's next phase."""
        for (kind, silo), noted in self.noted.items():
            if transaction.add_message(self.ctx, silo, noted.envelope):
                entry = "silo_refused" if kind == "refusal" else "update_accepted"
                transaction.record(entry, context=self.ctx, silo=silo, **noted.logged)
            if noted.manifest is not None:
                witness(transaction, self.admitted, noted.manifest)

    @property
    def ctx(self) -> Context:
        """Its context."""
        return self.admitted.context


@dataclass
class AggregatorState:
    """One aggregator's. All of it is touched on one event loop only, so between two awaits nothing moves."""

    identity: Identity
    charters: Succession
    store: Store
    models: Blobs
    parts: Blobs
    """What silos upload here, where the scheme has no share servers: <ctx>/<silo>/<part>."""
    sums: Blobs
    """What comes of it, by scheme: <ctx>/<name>/<part>."""
    optimizers: ServerMemory
    """What server steps remember from round to round."""
    witnesses: Witnesses
    bell: Bell
    presence: Presence
    readiness: Readiness
    """Which silos will take part in which job."""
    maintenance: Maintenance
    """Whether anything new begins."""
    turnouts: Turnouts = field(default_factory=Turnouts)
    """What became of each silo in the rounds of a job."""
    current: OpenRound | None = None
    coming_back: set[Context] = field(default_factory=set)
    """Rounds that are open by the database. One that is not ``current`` was interrupted and will be again:
    callers are asked for patience."""
    brought: set[ServerId] = field(default_factory=set)
    """Share servers that this process has brought the newest charter to."""

    @property
    def held(self) -> HeldCharter:
        """The charter in force."""
        return self.charters.held

    @property
    def me(self) -> PartyId:
        """This aggregator's name in the roster."""
        return self.identity.pin.party

    def sign(self, message: BaseModel, kind: MessageKind, context: Digest) -> Envelope:
        """Sign a message to all."""
        return sign_message(message, kind, context, self.me, self.identity.signing)


def over_or_coming_back(state: AggregatorState, ctx: Context) -> SealsumError:
    """Why nothing is taken for a round that is not the open one."""
    if ctx in state.coming_back:
        return ComingBack(f"round {ctx[:16]}…: it is being taken up after a restart; ask again")
    return OutOfOrder(f"round {ctx[:16]}…: it is over")
