"""Opening what other parties signed for a round: which sender may say what, and one word of each server."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from pydantic import BaseModel

from privacy.errors import NotAllowed, Unprocessable
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter
from privacy.secagg.validity.messages import CoinCommitment, CoinReveal, SharesManifest, Verdicts
from privacy.wire import job_envelope
from privacy.wire.envelope import Envelope, MessageKind, Verified, open_envelope
from privacy.wire.messages import (
    MAX_BYTES,
    AcceptedSet,
    OpeningShare,
    RoundOffer,
    ShareManifest,
    SurvivorSet,
)

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", AcceptedSet, SurvivorSet, OpeningShare, CoinCommitment, CoinReveal, Verdicts)


def open_from(
    charter: Charter,
    senders: Collection[PartyId],
    envelope: Envelope,
    model: type[M],
    kind: MessageKind,
    context: Digest | None,
) -> Verified[M]:
    """Open an envelope that only ``senders`` may have signed.

    Raises:
        NotAllowed: somebody else's. SignatureRejected, MalformedMessage: see ``open_envelope``.
    """
    _assert_from(senders, envelope, kind)
    return open_envelope(
        envelope,
        model,
        kind=kind,
        context=context,
        verify_key_of=lambda party: charter.member(party).verify_key,
        max_bytes=MAX_BYTES[kind],
    )


def open_offer(charter: Charter, envelope: Envelope) -> tuple[Verified[RoundOffer], Verified[JobSpec]]:
    """An offer by the charter's aggregator, and the job in it by one of its researchers.

    The offer's context is defined by its own plan, so it is compared here.

    Raises:
        NotAllowed, SignatureRejected, MalformedMessage: see ``open_from``.
        Unprocessable: the envelope's context is not the digest of the plan inside.
    """
    aggregators = [member.id for member in charter.with_role("aggregator")]
    offer = open_from(charter, aggregators, envelope, RoundOffer, "offer", None)
    if offer.context != offer.message.plan.context:
        raise Unprocessable("offer.context: expected the digest of its plan; the plan was altered")
    return offer, open_job(charter, offer.message.job)


def open_job(charter: Charter, envelope: Envelope) -> Verified[JobSpec]:
    """A job signed by a researcher of the roster under this charter."""
    _assert_from([member.id for member in charter.with_role("researcher")], envelope, "job")
    return job_envelope.open_job(envelope, charter)


def open_of_servers(
    charter: Charter,
    plan: RoundPlan,
    envelopes: Sequence[Envelope],
    model: type[S],
    kind: MessageKind,
) -> tuple[Verified[S], ...]:
    """One message of each server of the plan, in the plan's order.

    Raises:
        Unprocessable: one is missing, or twice there, or names another server than its signer.
        NotAllowed, SignatureRejected, MalformedMessage: see ``open_from``.
    """
    servers = [slot.server for slot in plan.servers]
    found: dict[PartyId, Verified[S]] = {}
    for envelope in envelopes:
        verified = open_from(charter, servers, envelope, model, kind, plan.context)
        if verified.message.server != verified.sender or verified.sender in found:
            raise Unprocessable(f"{kind}: expected one of each server in its own name")
        found[verified.sender] = verified
    if len(found) != len(servers):
        missing = ", ".join(server for server in servers if server not in found)
        raise Unprocessable(f"{kind}: expected one of each server; missing: {missing}")
    return tuple(found[server] for server in servers)


def manifest_kind(plan: RoundPlan) -> MessageKind:
    """Which kind a silo's manifest is for share servers."""
    return "manifest" if plan.validity is None else "validity_manifest"


def open_manifest(
    charter: Charter, plan: RoundPlan, silo: SiloId, envelope: Envelope
) -> Verified[ShareManifest] | Verified[SharesManifest]:
    """The manifest that this silo signed for share servers in a round of this plan.

    Raises:
        NotAllowed, SignatureRejected, MalformedMessage: see ``open_from``.
    """
    if plan.validity is None:
        return open_from(charter, [silo], envelope, ShareManifest, "manifest", plan.context)
    return open_from(charter, [silo], envelope, SharesManifest, "validity_manifest", plan.context)


def _assert_from(senders: Collection[PartyId], envelope: Envelope, kind: MessageKind) -> None:
    if envelope.sender not in senders:
        raise NotAllowed(f"{kind}: expected it from {', '.join(sorted(senders))}, got {envelope.sender}")


def short(ctx: Context) -> str:
    """A context as people read it."""
    return f"{ctx[:16]}…"
