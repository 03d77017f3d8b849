"""A silo's steps 1 and 2: keys of its own, then shares of them sealed to each peer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privacy.errors import SignatureRejected
from privacy.identity import SealingKey, SigningKey
from privacy.ids import Digest, SiloId
from privacy.secagg.keystream import SEED_BYTES
from privacy.secagg.pairwise import shamir
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation
from privacy.secagg.pairwise.masks import (
    agree,
    assert_distinct,
    key_set_digest,
    seal_pair,
    sealing_info,
    seed_commitment,
    share_commitment,
)
from privacy.secagg.pairwise.messages import KeyAdvert, ShareBundle, open_from_silo, sign
from privacy.secagg.pairwise.silo_state import RoundSecrets, SiloState, Step, answered, record
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms, judge_terms
from privacy.wire.envelope import Envelope


def begin(
    terms: PairwiseTerms, silo: SiloId, key: SigningKey, pinned: Mapping[SiloId, str], assumed: Assumption
) -> Step:
    """Step 1: judge the terms, then make this round's keys and advertise them.

    Args:
        pinned: silo → verify key, of every silo in this silo's own copy of the roster.
        assumed: whom this silo's own threat model takes to be hostile.

    Raises:
        WeakTerms: this silo must not take part on these terms.
    """
    judge_terms(terms, silo, key.verify_key, pinned, assumed)
    seed = os.urandom(SEED_BYTES)
    mask_key, sealing_key = X25519PrivateKey.generate(), SealingKey.generate()
    advert = KeyAdvert(
        sealing_key=sealing_key.public_hex,
        mask_key=mask_key.public_key().public_bytes_raw().hex(),
        seed_commitment=seed_commitment(terms.context, silo, seed),
    )
    secrets = RoundSecrets(
        seed=seed.hex(),
        mask_key=mask_key.private_bytes_raw().hex(),
        sealing_key=sealing_key.to_bytes().hex(),
    )
    messages = (sign(advert, terms, silo, key),)
    state = SiloState(terms=terms, silo=silo, secrets=secrets)
    return Step(record(state, "keys", terms.digest, messages), messages)


def share_keys(state: SiloState, key: SigningKey, adverts: Sequence[Envelope]) -> Step:
    """Step 2: deal shares of this silo's mask key and seed to everyone who advertised keys, itself included.

    (1) Each advert is signed by a member of the cohort, one a silo; (2) this silo's own is among them,
    unaltered; (3) enough silos are there; (4) no key is anyone else's too (Figure 4, round 1); (5) no mask
    key is a low-order point. (6) All of it enters K, under which the shares are sealed.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed, Equivocation: (1), (2). BelowThreshold: (3).
        BadKey: (4), (5). Equivocation: this silo has dealt shares under other keys.
    """
    terms = state.terms
    # (1)
    opened = [open_from_silo(advert, KeyAdvert, terms) for advert in adverts]
    keys = {SiloId(item.sender): item.message for item in opened}
    if len(keys) != len(opened):
        raise Equivocation("keys: expected one advert of each silo")
    # (2)
    own = state.sent("keys")[0].body_digest
    digests = {SiloId(item.sender): item.envelope.body_digest for item in opened}
    if digests.get(state.silo) != own:
        raise SignatureRejected(f"keys: expected silo {state.silo}'s own advert among them, as it was sent")
    key_set = key_set_digest(terms, digests)
    if (earlier := answered(state, "shares", key_set)) is not None:
        return earlier
    # (3)
    if len(keys) < terms.required:
        raise BelowThreshold(f"keys: expected at least {terms.required} silos, got {len(keys)}")
    # (4)
    assert_distinct(keys)
    # (5)
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(state.own_secrets().mask_key))
    for peer, advert in keys.items():
        if peer != state.silo:
            agree(private, peer, advert.mask_key)
    # (6)
    bundles = _deal(state, key, key_set, keys)
    state = state.model_copy(
        update={"key_set": key_set, "mask_keys": {peer: advert.mask_key for peer, advert in keys.items()}}
    )
    return Step(record(state, "shares", key_set, bundles), bundles)


def _deal(
    state: SiloState, key: SigningKey, key_set: Digest, keys: Mapping[SiloId, KeyAdvert]
) -> tuple[Envelope, ...]:
    """One sealed bundle for each holder (Bonawitz et al. 2017, Figure 4, round 1)."""
    terms, secrets = state.terms, state.own_secrets()
    indices = [terms.indices[holder] for holder in keys]
    key_shares = shamir.deal(bytes.fromhex(secrets.mask_key), terms.threshold, indices)
    seed_shares = shamir.deal(bytes.fromhex(secrets.seed), terms.threshold, indices)
    bundles = []
    for holder, advert in sorted(keys.items()):
        key_share, seed_share = (shares[terms.indices[holder]] for shares in (key_shares, seed_shares))
        bundle = ShareBundle(
            key_set=key_set,
            key_commitment=share_commitment(key_set, "key", state.silo, holder, key_share),
            seed_commitment=share_commitment(key_set, "seed", state.silo, holder, seed_share),
            sealed=seal_pair(
                key_share + seed_share,
                holder,
                advert.sealing_key,
                sealing_info(terms.context, key_set, state.silo, holder),
            ).hex(),
        )
        bundles.append(sign(bundle, terms, state.silo, key, holder))
    return tuple(bundles)
