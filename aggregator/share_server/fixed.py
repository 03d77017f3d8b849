"""What is fixed in a round with validity, read from the messages that this server has checked and stored.

So a restart between any two calls changes nothing, and no call can smuggle in another past.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from aggregator.store import Reader
from privacy.errors import OutOfOrder
from privacy.ids import Digest, PartyId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.agreement import settled, toss_over
from privacy.secagg.validity.coins import Coin, Step, Toss
from privacy.secagg.validity.messages import COIN_KINDS, CoinCommitment, CoinReveal
from privacy.wire.envelope import MessageKind
from privacy.wire.messages import AcceptedSet, accepted_by_all

M = TypeVar("M", bound=BaseModel)


def candidates_of(view: Reader, plan: RoundPlan) -> dict[SiloId, Digest]:
    """Silos whose shares every server accepted: silo → digest of its manifest.

    Raises:
        OutOfOrder: not every server's accepted set is here yet.
    """
    return accepted_by_all(_of_servers(view, plan, "accepted", AcceptedSet))


def proofs_of(view: Reader, plan: RoundPlan) -> dict[SiloId, Digest]:
    """Silos whose proof is here: silo → digest of its manifest."""
    proofs = view.messages(plan.context, "validity_proof")
    return {SiloId(silo): envelope.body_digest for silo, envelope in proofs.items()}


def toss_of(view: Reader, plan: RoundPlan, step: Step) -> Toss:
    """The toss of a step.

    Raises:
        OutOfOrder: what it is over is not fixed. Unprocessable: nothing is left that it could be over.
    """
    return toss_over(plan, step, candidates_of(view, plan) if step == 1 else proofs_of(view, plan))


def coin_of(view: Reader, plan: RoundPlan, step: Step) -> Coin:
    """The coin of a step.

    Raises:
        OutOfOrder: it is not settled here yet.
    """
    commitment, reveal = COIN_KINDS[step]
    return settled(
        toss_of(view, plan, step),
        _of_servers(view, plan, commitment, CoinCommitment),
        _of_servers(view, plan, reveal, CoinReveal),
    )


def _of_servers(view: Reader, plan: RoundPlan, kind: MessageKind, model: type[M]) -> list[M]:
    """One stored message of each server of the plan; each was verified before it was stored."""
    stored = view.messages(plan.context, kind)
    servers = [PartyId(slot.server) for slot in plan.servers]
    missing = ", ".join(server for server in servers if server not in stored)
    if missing:
        raise OutOfOrder(f"{kind}: expected one of each share server; missing: {missing}")
    return [model.model_validate_json(stored[server].body) for server in servers]
