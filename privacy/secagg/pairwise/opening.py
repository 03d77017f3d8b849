"""The server's steps 4 and 5: t signatures on one set of survivors, then shares that fit what was dealt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from privacy.errors import SignatureRejected
from privacy.ids import SiloId
from privacy.secagg.pairwise.collecting import MaskedClosed, enough, one_each
from privacy.secagg.pairwise.faults import BadShare, Equivocation
from privacy.secagg.pairwise.masks import share_commitment
from privacy.secagg.pairwise.messages import ConsistencySignature, UnmaskShares, open_from_silo
from privacy.wire.envelope import Envelope, Verified


@dataclass(frozen=True)
class Agreed:
    """U4: survivors who signed the one U3."""

    masked: MaskedClosed
    statement: ConsistencySignature
    signatures: Mapping[SiloId, Verified[ConsistencySignature]]

    @property
    def relay(self) -> tuple[Envelope, ...]:
        """What every signer gets."""
        return tuple(item.envelope for item in self.signatures.values())


def statement_of(masked: MaskedClosed) -> ConsistencySignature:
    """What each survivor is to sign about U3."""
    return ConsistencySignature(
        key_set=masked.shares.keys.key_set,
        dealers=masked.shares.dealers,
        survivors=masked.survivors,
        inputs=tuple(item.envelope.body_digest for item in masked.manifests.values()),
    )


def accept_consistency(masked: MaskedClosed, envelope: Envelope) -> Verified[ConsistencySignature]:
    """Step 4, one silo: a survivor's signature on exactly this U3.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message. Equivocation: over another set, or
            by one who is not in it.
    """
    signature = open_from_silo(envelope, ConsistencySignature, masked.terms)
    if signature.message != statement_of(masked) or signature.sender not in masked.manifests:
        raise Equivocation(
            f"consistency of silo {signature.sender}: it is not a survivor's word on these survivors"
        )
    return signature


def close_consistency(masked: MaskedClosed, signatures: Iterable[Verified[ConsistencySignature]]) -> Agreed:
    """Freeze U4.

    Raises:
        Equivocation: a silo signed twice. BelowThreshold.
    """
    by_silo = one_each("consistency", ((SiloId(item.sender), item) for item in signatures))
    enough("consistency", by_silo, masked.terms.threshold)
    return Agreed(masked, statement_of(masked), by_silo)


def accept_unmask(agreed: Agreed, envelope: Envelope) -> Verified[UnmaskShares]:
    """Step 5, one silo: (1) about this U3; (2) one share of each dealer whose shares it could use, of the
    seed for a survivor and of the key for a dropout; (3) each as its dealer committed to it.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message, or (1). BadShare: (2), (3).
    """
    masked = agreed.masked
    answer = open_from_silo(envelope, UnmaskShares, masked.terms, masked.terms.server)
    holder, message = SiloId(answer.sender), answer.message
    # (1)
    if message.consistency != agreed.statement.digest or holder not in masked.manifests:
        raise SignatureRejected(f"unmask of silo {holder}: it is about another set of survivors")
    # (2)
    unusable = set(masked.manifests[holder].message.unusable)
    if set(message.seed_shares) != set(masked.survivors) - unusable:
        raise BadShare(f"unmask of silo {holder}: expected a seed share of each survivor it can answer for")
    if set(message.key_shares) != set(masked.dropouts) - unusable:
        raise BadShare(f"unmask of silo {holder}: expected a key share of each dropout it can answer for")
    # (3)
    key_set = masked.shares.keys.key_set
    for dealer, share in message.seed_shares.items():
        bundle = masked.shares.bundles[dealer][holder].message
        if share_commitment(key_set, "seed", dealer, holder, bytes.fromhex(share)) != bundle.seed_commitment:
            raise BadShare(
                f"unmask of silo {holder}: its seed share of silo {dealer} is not the one dealt to it"
            )
    for dealer, share in message.key_shares.items():
        bundle = masked.shares.bundles[dealer][holder].message
        if share_commitment(key_set, "key", dealer, holder, bytes.fromhex(share)) != bundle.key_commitment:
            raise BadShare(
                f"unmask of silo {holder}: its key share of silo {dealer} is not the one dealt to it"
            )
    return answer
