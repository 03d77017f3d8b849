"""One round of each secure-aggregation scheme: what each of its parties does, in order.

Each silo's weight is 1, and nobody drops out. What a scheme does once a job (making and wrapping an HE key)
is on no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from secagg_he_round import homomorphic
from secagg_place import MODEL, SUM, Opened, Place, Script, fresh_context, size_of, widest_terms
from secagg_threshold_round import threshold
from secagg_validity_round import validity

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.identity import SealingKey, SigningKey
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.plan import CohortMember, VectorTerms
from privacy.secagg.additive import (
    AdditiveSiloHalf,
    Ring,
    SeedSumHalf,
    VectorSumHalf,
    combine,
    ring_to_bytes,
    unseal_seed,
)
from privacy.secagg.encoding import assert_fits, decode, encode_fresh
from privacy.secagg.keystream import DitherStream
from privacy.secagg.pairwise.collecting import (
    MaskedClosed,
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
from privacy.secagg.pairwise.silo_state import Step
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms, least_threshold
from privacy.secagg.pairwise.unmasking import CheckedPart, SumHalf, check_part
from privacy.secagg.parts import Stretch, stretches
from privacy.update import FLOAT_BYTES, model_bytes
from privacy.wire.envelope import sign_message
from privacy.wire.messages import ShareManifest

PAIRWISE_ASSUMED = Assumption("malicious", 0)
SEED_SERVER = ServerId(PartyId("share-server-b"))


def plaintext(place: Place) -> Opened:
    """No protection: float32 parts and their SHA-256 up, float32 sums part by part."""

    def silo(name: SiloId) -> Script:
        yield
        digests = []
        for piece in stretches(place.params):
            part = model_bytes(place.values(name, piece.start, piece.length))
            digests.append(_upload(place, name, piece.index, part))
        yield digests

    def server() -> Script:
        digests = yield
        for piece in stretches(place.params):
            total = np.zeros(piece.length, dtype=np.float32)
            for name in place.silos:
                part = _checked(place, name, piece.index, digests[name][piece.index])
                np.add(total, np.frombuffer(part, dtype="<f4"), out=total)
            place.store.put(SUM, piece.index, total.data)
        yield

    digests = {name: place.silo(name, silo(name)).ask() for name in place.silos}
    place.server(server()).ask(digests)
    place.costs.up_bytes += len(canonical_bytes(digests[place.first]))
    place.costs.down_bytes = FLOAT_BYTES * place.params
    return Opened(0, _cut(place), lambda raw: np.frombuffer(raw, dtype="<f4").astype(np.float64))


def additive(place: Place) -> Opened:
    """Two share servers: the first adds vector shares, the second expands seeds."""
    terms = widest_terms(lambda terms: assert_fits(terms, len(place.silos)))
    context, sealing = fresh_context(), SealingKey.generate()

    def silo(name: SiloId, key: SigningKey) -> Script:
        yield
        half = AdditiveSiloHalf(context, MODEL, name, {SEED_SERVER: sealing.public_hex})
        with place.on("update"):
            digests = [
                _upload(place, name, piece.index, ring_to_bytes(half.share(piece.start, encoded)))
                for piece, encoded in _encoded(place, name, terms)
            ]
        sealed = half.sealed_seeds[SEED_SERVER]
        manifest = ShareManifest(
            silo=name,
            model=MODEL,
            vector_length=place.params,
            parts=tuple(digests),
            seeds={SEED_SERVER: sha256_hex(sealed)},
            ledger_head=EMPTY,
        )
        yield sign_message(manifest, "manifest", context, name, key), manifest.parts, sealed

    def vector_server() -> Script:
        digests = yield
        for piece in stretches(place.params):
            parts = (_checked(place, name, piece.index, digests[name][piece.index]) for name in place.silos)
            share = ring_to_bytes(VectorSumHalf.total(parts, piece.length))
            place.store.put("share-a", piece.index, share)
        yield

    def seed_server() -> Script:
        sealed = yield
        seeds = [
            (name, unseal_seed(secret, sealing, context, MODEL, name, SEED_SERVER))
            for name, secret in sealed.items()
        ]
        half = SeedSumHalf(seeds, context, MODEL, SEED_SERVER)
        for piece in stretches(place.params):
            place.store.put("share-b", piece.index, ring_to_bytes(half.total(piece.start, piece.length)))
        yield

    def aggregator() -> Script:
        yield
        for piece in stretches(place.params):
            shares = (place.store.get(owner, piece.index) for owner in ("share-a", "share-b"))
            place.store.put(SUM, piece.index, combine(shares, piece.length).data)
        yield

    sent = {name: place.silo(name, silo(name, SigningKey.generate())).ask() for name in place.silos}
    place.server(vector_server()).ask({name: digests for name, (_, digests, _) in sent.items()})
    place.server(seed_server()).ask({name: sealed for name, (_, _, sealed) in sent.items()})
    place.server(aggregator()).ask()
    manifest, _, sealed = sent[place.first]
    place.costs.up_bytes += len(sealed) + 3 * size_of(manifest)  # to both servers and to the aggregator
    place.costs.down_bytes = FLOAT_BYTES * place.params
    return _ring_sum(place, terms)


def pairwise(place: Place) -> Opened:
    """One server, five signed steps, nobody drops out."""
    terms = widest_terms(lambda terms: assert_fits(terms, len(place.silos)))
    keys = {name: SigningKey.generate() for name in place.silos}
    round_terms = _pairwise_terms(place, keys, fresh_context())
    parties = {
        name: place.silo(name, _pairwise_silo(place, name, keys, round_terms, terms)) for name in place.silos
    }
    server = place.server(_pairwise_server(place, round_terms))
    relay = dict.fromkeys(place.silos)
    for _ in range(5):
        sent = {name: party.ask(relay[name]) for name, party in parties.items()}
        relay = server.ask(sent)
        place.costs.up_bytes += size_of(*sent[place.first])
        place.costs.down_bytes += size_of(*relay[place.first])
    place.costs.down_bytes += FLOAT_BYTES * place.params
    return _ring_sum(place, terms)


def _pairwise_terms(place: Place, keys: dict[SiloId, SigningKey], context: Context) -> PairwiseTerms:
    return PairwiseTerms(
        context=context,
        model=MODEL,
        server=PartyId("aggregator"),
        cohort=tuple(CohortMember(silo=name, verify_key=key.verify_key) for name, key in keys.items()),
        vector_length=place.params,
        threshold=least_threshold(len(place.silos), PAIRWISE_ASSUMED),
        minimum=2,
    )


def _pairwise_silo(
    place: Place, name: SiloId, keys: dict[SiloId, SigningKey], round_terms: PairwiseTerms, terms: VectorTerms
) -> Script:
    """Each step: the state is made bytes, to be stored, before anything is sent."""
    key = keys[name]

    def stored(step: Step) -> Step:
        step.state.to_bytes()
        return step

    yield
    step = stored(begin(round_terms, name, key, round_terms.verify_keys, PAIRWISE_ASSUMED))
    adverts = yield step.messages
    step = stored(share_keys(step.state, key, adverts))
    inbox = yield step.messages
    state = open_shares(step.state, inbox)
    masks = masker(state, MODEL)
    with place.on("update"):
        for piece, encoded in _encoded(place, name, terms):
            place.upload(name, piece.index, masks.mask(piece.index, encoded))
    step = stored(sign_masked(state, key, masks, EMPTY))
    manifests = yield step.messages
    step = stored(agree_survivors(step.state, key, manifests))
    signatures = yield step.messages
    yield stored(unmask(step.state, key, signatures)).messages


def _pairwise_server(place: Place, terms: PairwiseTerms) -> Script:
    sent = yield
    advertised = close_keys(terms, [accept_keys(terms, *messages) for messages in sent.values()])
    sent = yield dict.fromkeys(sent, advertised.relay)
    shares = close_shares(advertised, [accept_shares(advertised, messages) for messages in sent.values()])
    sent = yield {name: shares.inbox(name) for name in sent}
    masked = close_masked(shares, [accept_masked(shares, *messages) for messages in sent.values()])
    sent = yield dict.fromkeys(sent, masked.relay)
    agreed = close_consistency(masked, [accept_consistency(masked, *messages) for messages in sent.values()])
    sent = yield dict.fromkeys(sent, agreed.relay)
    half = SumHalf(agreed, [accept_unmask(agreed, *messages) for messages in sent.values()])
    with place.on("sum"):
        for piece in stretches(place.params):
            total = half.total(piece.index, _signed_parts(place, masked, piece.index))
            place.store.put(SUM, piece.index, total.data)
    yield dict.fromkeys(sent, ())


def _signed_parts(place: Place, masked: MaskedClosed, index: int) -> Iterator[CheckedPart]:
    for name, manifest in masked.manifests.items():
        part = place.store.get(name, index)
        with place.on("check"):
            checked = check_part(manifest, index, part)
        yield checked


def _encoded(place: Place, name: SiloId, terms: VectorTerms) -> Iterator[tuple[Stretch, Ring]]:
    """A silo's update as ring elements, part by part."""
    dither = DitherStream()
    for piece in stretches(place.params):
        values = place.values(name, piece.start, piece.length)
        with place.on("encode"):
            encoded = encode_fresh(values, 1.0, terms, dither)
        yield piece, encoded


def _upload(place: Place, name: SiloId, index: int, part: bytes) -> Digest:
    place.upload(name, index, part)
    return sha256_hex(part)


def _checked(place: Place, name: SiloId, index: int, digest: Digest) -> bytes:
    """A part that is the one its silo signed."""
    part = place.store.get(name, index)
    with place.on("check"):
        assert sha256_hex(part) == digest
    return part


def _ring_sum(place: Place, terms: VectorTerms) -> Opened:
    return Opened(
        terms.scale_bits, _cut(place), lambda raw: decode(np.frombuffer(raw, dtype=np.dtype("<u4")), terms)
    )


def _cut(place: Place) -> tuple[tuple[int, int, int], ...]:
    return tuple((piece.index, piece.start, piece.length) for piece in stretches(place.params))


ROUNDS: dict[str, Callable[[Place], Opened]] = {
    "additive": additive,
    "validity": validity,
    "pairwise": pairwise,
    "bfv": lambda place: homomorphic("bfv", place),
    "ckks": lambda place: homomorphic("ckks", place),
    "threshold_bfv": lambda place: threshold("threshold_bfv", place),
    "threshold_ckks": lambda place: threshold("threshold_ckks", place),
}
"""Every scheme that is measured; a new one is a line here. ``validity`` is additive with its proof."""
