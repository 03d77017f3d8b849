"""Which masks exist and what each key is for: agreement, derivation, commitments, and adding a mask.

s_ij = HKDF-SHA256(ikm = X25519(i, j), salt = K, info = "mask" ‖ ctx ‖ model ‖ min(i, j) ‖ max(i, j)), and
likewise each silo's own mask from its seed b_i. K is fresh every round and the pair is in ``info``, so a
mask key serves one pair in one round on one model. The model digest is the one that the *silo* computed:
silos that were sent different models produce noise, not a leak (Pasquini et al. 2021, arXiv 2111.07380).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from privacy.canonical import digest_of, sha256_hex
from privacy.errors import MalformedMessage
from privacy.ids import Context, Digest, SiloId
from privacy.sealing import seal
from privacy.secagg.keystream import apply_streams
from privacy.secagg.pairwise.faults import BadKey
from privacy.secagg.pairwise.messages import KeyAdvert
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.secagg.parts import Stretch
from privacy.secagg.vectors import MODEL, VectorName, purpose_for

Ring = NDArray[np.uint32]
ShareOf = Literal["key", "seed"]
_LABEL = b"sealsum/pairwise/v1"


def key_set_digest(terms: PairwiseTerms, adverts: Mapping[SiloId, Digest]) -> Digest:
    """K: digest of the terms and of every advert's body, by silo."""
    return digest_of("sealsum/pairwise/key-set/v1", {"terms": terms.digest, "adverts": dict(adverts)})


def seed_commitment(context: Context, silo: SiloId, seed: bytes) -> Digest:
    """H(b): binding and, b being 32 uniform bytes, hiding."""
    return sha256_hex(_bound("seed", bytes.fromhex(context), silo.encode(), seed))


def share_commitment(key_set: Digest, of: ShareOf, dealer: SiloId, holder: SiloId, share: bytes) -> Digest:
    """Digest of one Shamir share; below the threshold a share is uniform, so its digest says nothing."""
    return sha256_hex(
        _bound("share", bytes.fromhex(key_set), of.encode(), dealer.encode(), holder.encode(), share)
    )


def sealing_info(context: Context, key_set: Digest, dealer: SiloId, holder: SiloId) -> bytes:
    """What a sealed pair of shares is bound to; for another holder, dealer, round or K it does not open."""
    return _bound("sealed", bytes.fromhex(context), bytes.fromhex(key_set), dealer.encode(), holder.encode())


def agree(private: X25519PrivateKey, peer: SiloId, mask_key: str) -> bytes:
    """The X25519 shared secret with ``peer`` (RFC 7748 section 6.1), 32 bytes.

    Raises:
        BadKey: a low-order point, whose shared secret anyone knows.
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(mask_key)))
    except ValueError as error:
        raise BadKey(f"mask_key of silo {peer}: it is a low-order point") from error


def seal_pair(pair: bytes, holder: SiloId, sealing_key: str, info: bytes) -> bytes:
    """Seal a dealer's two shares to their holder.

    Raises:
        BadKey: the holder's sealing key is not one that anything can be sealed to.
    """
    try:
        return seal(pair, sealing_key, info)
    except (ValueError, MalformedMessage) as error:
        raise BadKey(f"sealing_key of silo {holder}: nothing can be sealed to it") from error


def assert_usable(silo: SiloId, advert: KeyAdvert) -> None:
    """Refuse an advert whose keys every honest peer would have to refuse; tried with throwaway secrets.

    Raises:
        BadKey: its mask key is a low-order point, or nothing can be sealed to its sealing key.
    """
    agree(X25519PrivateKey.generate(), silo, advert.mask_key)
    seal_pair(b"", silo, advert.sealing_key, b"")


def assert_distinct(adverts: Mapping[SiloId, KeyAdvert]) -> None:
    """Refuse keys that two silos both claim (Figure 4, round 1).

    Raises:
        BadKey: two silos advertise the same key or commitment.
    """
    for name in ("sealing_key", "mask_key", "seed_commitment"):
        claimed: dict[str, SiloId] = {}
        for silo, advert in adverts.items():
            if (other := claimed.setdefault(getattr(advert, name), silo)) != silo:
                raise BadKey(f"keys: silos {other} and {silo} advertise the same {name}")


@dataclass(frozen=True)
class Mask:
    """One AES-256-CTR keystream, and whether it is added to the update or taken away."""

    adds: bool
    _key: bytes = field(repr=False)

    def apply(self, start: int, elements: Ring) -> None:
        """Add this mask's elements [start, start + len) to ``elements`` in place, mod 2^32."""
        apply_streams(elements, start, *_by_sign([self]), out=elements)

    def inverse(self) -> Mask:
        """What takes this mask off again."""
        return Mask(not self.adds, self._key)


def own_mask(
    seed: bytes, key_set: Digest, context: Context, model: Digest, silo: SiloId, vector: VectorName = MODEL
) -> Mask:
    """PRG(b_i), which only t silos can take off, and only if silo i is a survivor; one for each vector."""
    return Mask(True, _derive(seed, key_set, purpose_for("self", vector), context, model, silo.encode()))


def pair_mask(
    shared: bytes,
    key_set: Digest,
    context: Context,
    model: Digest,
    silo: SiloId,
    peer: SiloId,
    vector: VectorName = MODEL,
) -> Mask:
    """±PRG(s_ij) as ``silo`` applies it: it adds where its name is the greater (Figure 4, round 2)."""
    low, high = sorted((silo.encode(), peer.encode()))
    purpose = purpose_for("mask", vector)
    return Mask(silo.encode() == high, _derive(shared, key_set, purpose, context, model, low, high))


def with_masks(masks: tuple[Mask, ...], stretch: Stretch, elements: Ring, out: Ring | None = None) -> Ring:
    """One part under every mask: a new array, or ``out``, which may be ``elements``."""
    return apply_streams(elements, stretch.start, *_by_sign(masks), out=out)


def _by_sign(masks: Sequence[Mask]) -> tuple[list[bytes], list[bytes]]:
    """The keys of the streams to add, and of those to take away."""
    return [mask._key for mask in masks if mask.adds], [mask._key for mask in masks if not mask.adds]


def _derive(
    secret: bytes, key_set: Digest, purpose: str, context: Context, model: Digest, *silos: bytes
) -> bytes:
    info = _bound(purpose, bytes.fromhex(context), bytes.fromhex(model), *silos)
    return HKDF(algorithm=SHA256(), length=32, salt=bytes.fromhex(key_set), info=info).derive(secret)


def _bound(purpose: str, *fields: bytes) -> bytes:
    """A label, then each field behind its length: no two sets of fields give the same bytes."""
    return b"".join(len(piece).to_bytes(4, "big") + piece for piece in (_LABEL, purpose.encode(), *fields))
