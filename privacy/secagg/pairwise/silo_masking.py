"""A silo's step 3: open what the peers dealt, mask the one update part by part, and sign what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import MalformedMessage, OutOfOrder, SignatureRejected
from privacy.identity import SealingKey, SigningKey
from privacy.ids import Digest, SiloId
from privacy.sealing import unseal
from privacy.secagg.additive import ring_to_bytes
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation
from privacy.secagg.pairwise.masks import (
    Mask,
    Ring,
    agree,
    own_mask,
    pair_mask,
    sealing_info,
    share_commitment,
    with_masks,
)
from privacy.secagg.pairwise.messages import MaskedInput, ShareBundle, open_from_silo, sign
from privacy.secagg.pairwise.shamir import SHARE_BYTES
from privacy.secagg.pairwise.silo_state import HeldShares, SiloState, Step, answered, digest_of_bodies, record
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.secagg.vectors import MODEL, VectorName
from privacy.wire.envelope import Envelope, Verified


def open_shares(state: SiloState, inbox: Sequence[Envelope]) -> SiloState:
    """Open the bundles addressed to this silo; their dealers are U2, the silos it shares masks with.

    (1) Each is signed by a silo whose keys are in K, under K, for this silo, one a dealer; (2) this silo's
    own is among them, unaltered; (3) enough dealers are there; (4) no other inbox was opened before.
    A pair of shares that does not open or fit its commitments is noted as unusable and its dealer named in
    step 3: one silo that deals badly must not make the others leave.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed, Equivocation: (1), (2). BelowThreshold: (3).
        Equivocation: (4).
    """
    state.sent("shares")
    key_set = state.the_key_set()
    # (1)
    opened = [open_from_silo(bundle, ShareBundle, state.terms, state.silo) for bundle in inbox]
    dealt = {SiloId(item.sender): item for item in opened}
    if len(dealt) != len(opened):
        raise Equivocation("shares: expected one bundle of each dealer")
    for dealer, item in dealt.items():
        if dealer not in state.mask_keys or item.message.key_set != key_set:
            raise SignatureRejected(f"shares of silo {dealer}: they are bound to another set of keys")
    # (2)
    own = next(bundle for bundle in state.sent("shares") if bundle.recipient == state.silo)
    if state.silo not in dealt or dealt[state.silo].envelope.body_digest != own.body_digest:
        raise SignatureRejected(f"shares: expected silo {state.silo}'s own bundle among them, as it was sent")
    # (3)
    if len(dealt) < state.terms.required:
        raise BelowThreshold(f"shares: expected at least {state.terms.required} dealers, got {len(dealt)}")
    # (4)
    seen = digest_of_bodies("sealsum/pairwise/inbox/v1", inbox)
    if state.inbox is not None and state.inbox != seen:
        raise Equivocation("shares: this silo has opened another inbox in this round, and opens no second")
    if state.inbox is not None:
        return state
    sealing_key = SealingKey.from_bytes(bytes.fromhex(state.own_secrets().sealing_key))
    held = {dealer: pair for dealer, item in dealt.items() if (pair := _open_pair(state, sealing_key, item))}
    unusable = tuple(sorted(set(dealt) - set(held)))
    return state.model_copy(
        update={"inbox": seen, "dealers": tuple(sorted(dealt)), "held": held, "unusable": unusable}
    )


def _open_pair(state: SiloState, key: SealingKey, item: Verified[ShareBundle]) -> HeldShares | None:
    """The two shares in a bundle, or nothing where the dealer cheated (the caller notes who)."""
    dealer, bundle, key_set = SiloId(item.sender), item.message, state.the_key_set()
    info = sealing_info(state.terms.context, key_set, dealer, state.silo)
    try:
        pair = unseal(bytes.fromhex(bundle.sealed), key, info)
    except MalformedMessage:
        return None
    key_share, seed_share = pair[:SHARE_BYTES], pair[SHARE_BYTES:]
    committed = (bundle.key_commitment, bundle.seed_commitment)
    if committed != (
        share_commitment(key_set, "key", dealer, state.silo, key_share),
        share_commitment(key_set, "seed", dealer, state.silo, seed_share),
    ):
        return None
    return HeldShares(key=key_share.hex(), seed=seed_share.hex())


class Masker:
    """Masks one update, each part once and in order; a second update under these masks would open both."""

    def __init__(
        self, masks: Mapping[VectorName, tuple[Mask, ...]], model: Digest, terms: PairwiseTerms
    ) -> None:
        """``masks``: for each vector of the round its own."""
        self.model = model
        self._masks = masks
        self._terms = terms
        self._digests: list[Digest] = []

    def mask(self, index: int, encoded: Ring, vector: VectorName = MODEL) -> bytes:
        """Part ``index`` of y = x + PRG(b) ± Σ PRG(s), little-endian bytes to upload (Figure 4, round 2).

        Args:
            encoded: uint32[m], that stretch of the encoded update; it is left as it is.

        Raises:
            OutOfOrder: not the next part of the vectors in the terms' order.
            NotFound: the round has no such vector or part. ValueError: not the part's length, or not uint32.
        """
        place = self._terms.places.place(vector, index)
        if place != len(self._digests):
            raise OutOfOrder(f"part: expected {len(self._digests)}, got {place}; a part is masked once")
        piece = self._terms.stretch_of(vector, index)
        if encoded.dtype != "<u4" or encoded.shape != (piece.length,):
            raise ValueError(f"part {index}: expected uint32[{piece.length}]")
        raw = ring_to_bytes(with_masks(self._masks[vector], piece, encoded))
        self._digests.append(sha256_hex(raw))
        return raw

    @property
    def parts(self) -> tuple[Digest, ...]:
        """Digest of every part of every vector; raises OutOfOrder while some are not masked."""
        if missing := self._terms.places.total - len(self._digests):
            raise OutOfOrder(f"parts: {missing} are not masked yet")
        return tuple(self._digests)


def masker(state: SiloState, model: Digest) -> Masker:
    """What masks this silo's update. Nothing it gives may be sent before ``sign_masked`` is stored.

    Args:
        model: digest of the model bytes this silo received, computed by itself.

    Raises:
        OutOfOrder: no shares were opened yet, or the masked update is signed already.
    """
    if state.inbox is None:
        raise OutOfOrder("pairwise masked: the shares of the others are not opened yet")
    shared = dict(_agreements(state))
    masks = {vector: tuple(_masks(state, model, shared, vector)) for vector in state.terms.lengths}
    return Masker(masks, model, state.terms)


def _agreements(state: SiloState) -> Iterator[tuple[SiloId, bytes]]:
    """Peer → the secret shared with it: one agreement serves all vectors of the round."""
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(state.own_secrets().mask_key))
    for peer in state.dealers:
        if peer != state.silo:
            yield peer, agree(private, peer, state.mask_keys[peer])


def _masks(
    state: SiloState, model: Digest, shared: Mapping[SiloId, bytes], vector: VectorName
) -> Iterator[Mask]:
    """The masks of one vector, under keys that no other vector has."""
    seed, key_set, context = state.own_secrets().seed, state.the_key_set(), state.terms.context
    yield own_mask(bytes.fromhex(seed), key_set, context, model, state.silo, vector)
    for peer, secret in shared.items():
        yield pair_mask(secret, key_set, context, model, state.silo, peer, vector)


def sign_masked(state: SiloState, key: SigningKey, masked: Masker, ledger_head: Head) -> Step:
    """Step 3: sign which bytes are this silo's one masked update, and forget the keys that masked it.

    Raises:
        OutOfOrder: parts are missing, or step 2 was not signed. Equivocation: another update is signed.
    """
    if state.inbox is None:
        raise OutOfOrder("pairwise masked: the shares of the others are not opened yet")
    message = MaskedInput(
        silo=state.silo,
        key_set=state.the_key_set(),
        model=masked.model,
        dealers=state.dealers,
        unusable=state.unusable,
        parts=masked.parts,
        ledger_head=ledger_head,
    )
    envelope = sign(message, state.terms, state.silo, key)
    if (earlier := answered(state, "masked", envelope.body_digest)) is not None:
        return earlier
    state = state.model_copy(update={"secrets": None})
    return Step(record(state, "masked", envelope.body_digest, [envelope]), (envelope,))
