"""One round of each secure-aggregation scheme in memory, with its CPU time and bytes by party.

Each silo's weight is 1, and nobody drops out. What a scheme does once an epoch (making and wrapping an HE
key) is on no clock.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from secagg_costs import (
    Costs,
    Opened,
    Updates,
    encode_update,
    fresh_context,
    hash_all,
    length_of,
    size_of,
    widest_terms,
)

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.identity import SealingKey, SigningKey
from privacy.ids import Digest, PartyId, ServerId, SiloId
from privacy.plan import CohortMember
from privacy.secagg.additive import (
    AdditiveSiloHalf,
    SeedSumHalf,
    VectorSumHalf,
    combine,
    ring_to_bytes,
    unseal_seed,
)
from privacy.secagg.encoding import assert_fits, decode
from privacy.secagg.he.framing import he_stretches
from privacy.secagg.he.keys import KeyUse, make_key
from privacy.secagg.he.messages import CiphertextManifest, SumManifest
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.parameters import assert_fits as he_assert_fits
from privacy.secagg.he.silo_half import HeSiloHalf
from privacy.secagg.he.sum_half import HeSumHalf
from privacy.secagg.pairwise.collecting import (
    accept_keys,
    accept_masked,
    accept_shares,
    close_keys,
    close_masked,
    close_shares,
)
from privacy.secagg.pairwise.opening import accept_consistency, accept_unmask, close_consistency
from privacy.secagg.pairwise.silo_keys import begin, share_keys
from privacy.secagg.pairwise.silo_masking import masker, open_shares, sign_masked
from privacy.secagg.pairwise.silo_opening import agree_survivors, unmask
from privacy.secagg.pairwise.silo_state import SiloState, Step
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms, least_threshold
from privacy.secagg.pairwise.unmasking import SumHalf, check_part
from privacy.secagg.parts import stretches
from privacy.update import FLOAT_BYTES, model_bytes
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import ShareManifest

MODEL = Digest("22" * 32)
HE_ROWS = {"bfv": "bfv-2048-40", "ckks": "ckks-4096-36"}
PAIRWISE_ASSUMED = Assumption("malicious", 0)


def plaintext(updates: Updates) -> Opened:
    """No protection: float32 parts and their SHA-256 up, float32 sums part by part."""
    costs, length, first = Costs(), length_of(updates), next(iter(updates))
    parts: dict[SiloId, list[bytes]] = {}
    for silo, update in updates.items():
        with costs.on("protect", silo == first):
            parts[silo] = [
                model_bytes(update[piece.start : piece.start + piece.length]) for piece in stretches(length)
            ]
            digests = [sha256_hex(part) for part in parts[silo]]
    total = np.zeros(length, dtype=np.float32)
    with costs.on("server"):
        for piece in stretches(length):
            running = total[piece.start : piece.start + piece.length]
            for uploaded in parts.values():
                np.add(running, np.frombuffer(uploaded[piece.index], dtype="<f4"), out=running)
    with costs.on("check"):
        hash_all(parts)
    costs.up_bytes = sum(map(len, parts[first])) + len(canonical_bytes(digests))
    costs.down_bytes = FLOAT_BYTES * length
    return Opened(total.astype(np.float64), 0, costs)


def additive(updates: Updates) -> Opened:
    """Two share servers: the first adds vector shares, the second expands seeds."""
    costs, length, first = Costs(), length_of(updates), next(iter(updates))
    terms = widest_terms(lambda terms: assert_fits(terms, len(updates)))
    context, server, sealing = fresh_context(), ServerId(PartyId("share-server-b")), SealingKey.generate()
    parts: dict[SiloId, list[bytes]] = {}
    sealed: dict[SiloId, bytes] = {}
    for silo, update in updates.items():
        measured, key = silo == first, SigningKey.generate()
        encoded = encode_update(update, terms, costs, measured)
        with costs.on("protect", measured):
            half = AdditiveSiloHalf(context, MODEL, silo, {server: sealing.public_hex})
            parts[silo] = [
                ring_to_bytes(half.share(piece.start, encoded[piece.start : piece.start + piece.length]))
                for piece in stretches(length)
            ]
            sealed[silo] = half.sealed_seeds[server]
            manifest = ShareManifest(
                silo=silo,
                model=MODEL,
                vector_length=length,
                parts=tuple(sha256_hex(part) for part in parts[silo]),
                seeds={server: sha256_hex(sealed[silo])},
                ledger_head=EMPTY,
            )
            envelope = sign_message(manifest, "manifest", context, silo, key)
        if measured:
            # The manifest goes to both servers and to the aggregator.
            costs.up_bytes = sum(map(len, parts[silo])) + len(sealed[silo]) + 3 * size_of(envelope)
    with costs.on("check"):
        hash_all(parts)
    total = np.empty(length, dtype="<u4")
    with costs.on("server"):
        seeds = [
            (silo, unseal_seed(secret, sealing, context, MODEL, silo, server))
            for silo, secret in sealed.items()
        ]
        expanded = SeedSumHalf(seeds, context, MODEL, server)
        for piece in stretches(length):
            added = VectorSumHalf.total((uploaded[piece.index] for uploaded in parts.values()), piece.length)
            shares = (ring_to_bytes(added), ring_to_bytes(expanded.total(piece.start, piece.length)))
            total[piece.start : piece.start + piece.length] = combine(shares, piece.length)
    costs.down_bytes = FLOAT_BYTES * length
    return Opened(decode(total, terms), terms.scale_bits, costs)


def pairwise(updates: Updates) -> Opened:
    """One server, five signed steps, nobody drops out."""
    costs, length, first = Costs(), length_of(updates), next(iter(updates))
    terms = widest_terms(lambda terms: assert_fits(terms, len(updates)))
    keys = {silo: SigningKey.generate() for silo in updates}
    pinned = {silo: key.verify_key for silo, key in keys.items()}
    round_terms = PairwiseTerms(
        context=fresh_context(),
        model=MODEL,
        server=PartyId("aggregator"),
        cohort=tuple(CohortMember(silo=silo, verify_key=key) for silo, key in sorted(pinned.items())),
        vector_length=length,
        threshold=least_threshold(len(updates), PAIRWISE_ASSUMED),
        minimum=2,
    )
    states: dict[SiloId, SiloState] = {}
    parts: dict[SiloId, list[bytes]] = {}

    def step(act: Callable[[SiloId], Step]) -> list[tuple[Envelope, ...]]:
        """One step of every silo: each stores its state before it sends."""
        sent: list[tuple[Envelope, ...]] = []
        for silo in updates:
            with costs.on("protect", silo == first):
                done = act(silo)
                done.state.to_bytes()
            states[silo] = done.state
            sent.append(done.messages)
        costs.up_bytes += sum(size_of(message) for message in sent[0])
        return sent

    def upload(silo: SiloId) -> Step:
        state = open_shares(states[silo], shares.inbox(silo))
        masks = masker(state, MODEL)
        parts[silo] = [
            masks.mask(piece.index, encoded[silo][piece.start : piece.start + piece.length])
            for piece in stretches(length)
        ]
        return sign_masked(state, keys[silo], masks)

    encoded = {silo: encode_update(update, terms, costs, silo == first) for silo, update in updates.items()}
    adverts = step(lambda silo: begin(round_terms, silo, keys[silo], pinned, PAIRWISE_ASSUMED))
    with costs.on("server"):
        advertised = close_keys(round_terms, [accept_keys(round_terms, *sent) for sent in adverts])
    dealt = step(lambda silo: share_keys(states[silo], keys[silo], advertised.relay))
    with costs.on("server"):
        shares = close_shares(advertised, [accept_shares(advertised, sent) for sent in dealt])
    uploads = step(upload)
    with costs.on("server"):
        masked = close_masked(shares, [accept_masked(shares, *sent) for sent in uploads])
    signed = step(lambda silo: agree_survivors(states[silo], keys[silo], masked.relay))
    with costs.on("server"):
        agreed = close_consistency(masked, [accept_consistency(masked, *sent) for sent in signed])
    answers = step(lambda silo: unmask(states[silo], keys[silo], agreed.relay))
    total = np.empty(length, dtype="<u4")
    with costs.on("check"):
        checked = {
            silo: [check_part(manifest, index, part) for index, part in enumerate(parts[silo])]
            for silo, manifest in masked.manifests.items()
        }
    with costs.on("server"):
        half = SumHalf(agreed, [accept_unmask(agreed, *sent) for sent in answers])
        for piece in stretches(length):
            total[piece.start : piece.start + piece.length] = half.total(
                piece.index, (by_part[piece.index] for by_part in checked.values())
            )
    costs.up_bytes += sum(map(len, parts[first]))
    relayed = (*advertised.relay, *shares.inbox(first), *masked.relay, *agreed.relay)
    costs.down_bytes = FLOAT_BYTES * length + sum(map(size_of, relayed))
    return Opened(decode(total, terms), terms.scale_bits, costs)


def homomorphic(scheme: str, updates: Updates) -> Opened:
    """``bfv`` or ``ckks``: silos encrypt under their one key, the server adds, each silo opens the sum."""
    costs, length, first = Costs(), length_of(updates), next(iter(updates))
    row = PARAMETERS[HE_ROWS[scheme]]
    terms = widest_terms(lambda terms: he_assert_fits(row, terms, len(updates)))
    use = KeyUse("benchmark", 1, row)
    key = make_key(use)
    parts: dict[SiloId, list[bytes]] = {}
    halves: dict[SiloId, HeSiloHalf] = {}
    for silo, update in updates.items():
        measured = silo == first
        encoded = encode_update(update, terms, costs, measured)
        with costs.on("protect", measured):
            halves[silo] = HeSiloHalf(key, use, terms, length, len(updates))
            parts[silo] = [
                halves[silo].encrypt(piece.index, encoded[piece.start : piece.start + piece.length])
                for piece in he_stretches(row, length)
            ]
            manifest = CiphertextManifest(
                silo=silo,
                model=MODEL,
                parameters=row.name,
                key=key.id,
                vector_length=length,
                parts=tuple(sha256_hex(part) for part in parts[silo]),
                ledger_head=EMPTY,
            )
        if measured:
            costs.up_bytes = sum(map(len, parts[silo])) + len(canonical_bytes(manifest))
    with costs.on("check"):
        hash_all(parts)
    with costs.on("server"):
        half = HeSumHalf(row.name, len(updates))
        sums = [
            half.total((uploaded[piece.index] for uploaded in parts.values()), piece)
            for piece in he_stretches(row, length)
        ]
    summed = SumManifest(
        parameters=row.name,
        key=key.id,
        vector_length=length,
        survivors=tuple(updates),
        manifests=tuple(MODEL for _ in updates),
        parts=tuple(sha256_hex(part) for part in sums),
    )
    costs.down_bytes = sum(map(len, sums)) + len(canonical_bytes(summed))
    with costs.on("open"):
        opened = [halves[first].open(index, part, len(updates)) for index, part in enumerate(sums)]
        hash_all({first: sums})
    return Opened(decode(np.concatenate(opened), terms), terms.scale_bits, costs)


ROUNDS: dict[str, Callable[[Updates], Opened]] = {
    "additive": additive,
    "pairwise": pairwise,
    "bfv": lambda updates: homomorphic("bfv", updates),
    "ckks": lambda updates: homomorphic("ckks", updates),
}
