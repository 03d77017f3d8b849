"""The server's sum: rebuild what must come off, check it against what was advertised, and take it off.

Own masks of survivors come off by their seeds; what survivors added for a dropout comes off by the
dropout's mask key. Survivors' masks of one another cancel by themselves. Memory stays at a few parts.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privacy.canonical import sha256_hex
from privacy.errors import NotFound, Unprocessable
from privacy.ids import SiloId
from privacy.secagg.additive import ring_from_bytes
from privacy.secagg.pairwise import shamir
from privacy.secagg.pairwise.collecting import one_each
from privacy.secagg.pairwise.faults import BadShare, BelowThreshold
from privacy.secagg.pairwise.masks import Mask, Ring, agree, own_mask, pair_mask, seed_commitment, with_masks
from privacy.secagg.pairwise.messages import MaskedInput, UnmaskShares
from privacy.secagg.pairwise.opening import Agreed
from privacy.secagg.vectors import MODEL, VectorName
from privacy.wire.envelope import Verified


@dataclass(frozen=True)
class CheckedPart:
    """One part of a masked update whose bytes are those its silo signed."""

    silo: SiloId
    index: int
    """Its place in the manifest, which lists the parts of all vectors (``PairwiseTerms.places``)."""
    raw: bytes = field(repr=False)


def check_part(manifest: Verified[MaskedInput], index: int, raw: bytes) -> CheckedPart:
    """Compare one uploaded part with its silo's manifest.

    Raises:
        NotFound: there is no such part. Unprocessable: other bytes than the silo signed.
    """
    if not 0 <= index < len(manifest.message.parts):
        raise NotFound(f"part: expected 0 to {len(manifest.message.parts) - 1}, got {index}")
    if sha256_hex(raw) != manifest.message.parts[index]:
        raise Unprocessable(f"part {index} of silo {manifest.sender}: it is not what the silo signed")
    return CheckedPart(SiloId(manifest.sender), index, raw)


class SumHalf:
    """Opens the one sum of a round, part by part. Holds masks, so it is never stored or printed."""

    def __init__(self, agreed: Agreed, answers: Iterable[Verified[UnmaskShares]]) -> None:
        """Rebuild the seeds of survivors and the mask keys of dropouts, from at least t answers.

        Raises:
            Equivocation: a silo answered twice. BelowThreshold: too few shares of some silo.
            BadShare: a rebuilt key or seed is not what its dealer advertised; nothing is opened.
        """
        self._terms = agreed.masked.terms
        self._survivors = agreed.masked.survivors
        by_holder = one_each("unmask", ((SiloId(item.sender), item.message) for item in answers))
        removed = tuple(_masks_to_remove(agreed, by_holder))
        self._masks: dict[VectorName, tuple[Mask, ...]] = {
            vector: tuple(mask_of(vector=vector).inverse() for mask_of in removed)
            for vector in self._terms.lengths
        }

    def total(self, index: int, parts: Iterable[CheckedPart], vector: VectorName = MODEL) -> Ring:
        """Part ``index`` of Σ_{U3} x, uint32[m], from that part of every survivor, in any order.

        Raises:
            NotFound: the round has no such vector.
            Unprocessable: another index, silo or length than expected, or a survivor's part is missing.
        """
        piece = self._terms.stretch_of(vector, index)
        place = self._terms.places.place(vector, index)
        total = np.zeros(piece.length, dtype="<u4")
        seen: set[SiloId] = set()
        for part in parts:
            if part.index != place or part.silo in seen or part.silo not in self._survivors:
                raise Unprocessable(
                    f"part {place}: expected one of each survivor, got {part.index} of {part.silo}"
                )
            np.add(total, ring_from_bytes(part.raw, piece.length), out=total)
            seen.add(part.silo)
        if len(seen) != len(self._survivors):
            raise Unprocessable(
                f"part {index}: expected {len(self._survivors)} survivors' parts, got {len(seen)}"
            )
        return with_masks(self._masks[vector], piece, total, out=total)


def _masks_to_remove(agreed: Agreed, answers: Mapping[SiloId, UnmaskShares]) -> Iterator[partial[Mask]]:
    """What does not cancel (Bonawitz et al. 2017, Figure 4, round 4); each still asks for which vector."""
    masked = agreed.masked
    terms, keys = masked.terms, masked.shares.keys
    for silo in masked.survivors:
        seed = _rebuilt(agreed, silo, {holder: answer.seed_shares for holder, answer in answers.items()})
        expected = keys.adverts[silo].message.seed_commitment
        if not hmac.compare_digest(seed_commitment(terms.context, silo, seed), expected):
            raise BadShare(
                f"seed of silo {silo}: what its shares rebuild is not what it committed to; nothing is opened"
            )
        yield partial(own_mask, seed, keys.key_set, terms.context, terms.model, silo)
    for dropout in masked.dropouts:
        raw = _rebuilt(agreed, dropout, {holder: answer.key_shares for holder, answer in answers.items()})
        private = X25519PrivateKey.from_private_bytes(raw)
        if private.public_key().public_bytes_raw().hex() != keys.adverts[dropout].message.mask_key:
            raise BadShare(
                f"mask key of silo {dropout}: what its shares rebuild is not its key; nothing is opened"
            )
        for survivor in masked.survivors:
            shared = agree(private, survivor, keys.adverts[survivor].message.mask_key)
            yield partial(pair_mask, shared, keys.key_set, terms.context, terms.model, survivor, dropout)


def _rebuilt(agreed: Agreed, dealer: SiloId, shares: Mapping[SiloId, Mapping[SiloId, str]]) -> bytes:
    """The dealer's secret. Any t shares serve: each was checked against the dealer's own commitment."""
    terms = agreed.masked.terms
    held = {
        terms.indices[holder]: bytes.fromhex(by_dealer[dealer])
        for holder, by_dealer in shares.items()
        if dealer in by_dealer
    }
    if len(held) < terms.threshold:
        raise BelowThreshold(
            f"shares of silo {dealer}: expected at least {terms.threshold}, got {len(held)}; "
            "nothing is opened"
        )
    return shamir.rebuild(held, terms.threshold)
