"""One round of additive sharing with the proof of an L2 bound on the shares: two share servers, two coins."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from secagg_place import MODEL, SUM, Opened, Place, Script, fresh_context

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.identity import SealingKey
from privacy.ids import Context, PartyId, ServerId, SiloId
from privacy.secagg.keystream import Dither
from privacy.secagg.validity.coins import CoinHalf, Reveals, Step, Toss, settle
from privacy.secagg.validity.encoding import decode, encode, encode_weight
from privacy.secagg.validity.field import FIELD_BYTES, Field, add, from_bytes, to_bytes
from privacy.secagg.validity.messages import ProofManifest, SharesManifest, frozen_digest
from privacy.secagg.validity.server import ValidityServerHalf, judge
from privacy.secagg.validity.sharing import PART_ELEMENTS, Binding, accumulate, unseal_seed
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import ValidityTerms
from privacy.update import FLOAT_BYTES

SERVERS = tuple(ServerId(PartyId(f"share-server-{letter}")) for letter in "ab")


def validity(place: Place) -> Opened:
    """Share, toss, prove, toss, check, sum; every silo is honest and must pass."""
    context, terms = fresh_context(), _terms(place.params)
    keys = {server: SealingKey.generate() for server in SERVERS}
    silos = {name: place.silo(name, _silo(place, name, terms, context, keys)) for name in place.silos}
    shared = {name: party.ask() for name, party in silos.items()}
    first = _toss(context, 1, {name: sent[0] for name, sent in shared.items()})
    proofs = {name: party.ask(first) for name, party in silos.items()}
    second = _toss(context, 2, {name: sent[0] for name, sent in proofs.items()})
    servers = {
        server: place.server(_server(place, server, terms, context, keys[server])) for server in SERVERS
    }
    seeds = {name: sealed for name, (_, sealed) in shared.items()}
    witnesses = {name: witness for name, (_, witness) in proofs.items()}
    checks = {
        server: party.ask((seeds, witnesses if server == SERVERS[0] else {}, first, second))
        for server, party in servers.items()
    }
    for party in servers.values():
        party.ask(checks)
    place.server(_aggregator(place, terms)).ask()
    manifest, sealed = shared[place.first]
    proof, witness = proofs[place.first]
    # Manifests go to both servers and to the aggregator, each sealed seed to one server.
    place.costs.up_bytes += 3 * len(canonical_bytes(manifest)) + sum(map(len, sealed.values()))
    place.costs.up_bytes += 3 * len(canonical_bytes(proof)) + FIELD_BYTES * len(witness)
    place.costs.down_bytes = FLOAT_BYTES * place.params
    cut = tuple((index, start, min(length, place.params - start)) for index, start, length in _parts(terms))
    return Opened(
        terms.scale_bits,
        tuple(piece for piece in cut if piece[2] > 0),
        lambda raw: decode(from_bytes(raw, len(raw) // FIELD_BYTES), terms, len(place.silos)),
    )


def _terms(params: int) -> ValidityTerms:
    """A bound that no coordinates in [−1, 1] exceed, at the finest scale that it can be proven at."""
    for bits in range(24, 0, -1):
        try:
            return ValidityTerms(dimension=params, norm_bound=math.sqrt(params), scale_bits=bits)
        except ValidationError:
            continue
    raise SystemExit("params: no scale fits so many")


def _parts(terms: ValidityTerms) -> Iterator[tuple[int, int, int]]:
    """Number, start and length of every part, the weight behind the last coordinate included."""
    for index, start in enumerate(range(0, terms.vector_length, PART_ELEMENTS)):
        yield index, start, min(PART_ELEMENTS, terms.vector_length - start)


def _toss(
    context: Context, step: Step, manifests: dict[SiloId, SharesManifest | ProofManifest]
) -> tuple[Toss, Reveals]:
    """What all servers commit to and reveal; each party settles the coin itself."""
    frozen = frozen_digest({name: sha256_hex(canonical_bytes(sent)) for name, sent in manifests.items()})
    toss = Toss(context, step, frozen, SERVERS)
    halves = {server: CoinHalf(toss, server) for server in SERVERS}
    commitments = {server: half.commitment for server, half in halves.items()}
    return toss, Reveals(commitments, {server: half.reveal(commitments) for server, half in halves.items()})


def _silo(
    place: Place, name: SiloId, terms: ValidityTerms, context: Context, keys: dict[ServerId, SealingKey]
) -> Script:
    yield
    public = {server: key.public_hex for server, key in keys.items()}
    half = ValiditySiloHalf(terms, Binding(context, terms.digest, MODEL, name), public)
    dither, digests = Dither(), []
    with place.on("update"):
        for index, start, length in _parts(terms):
            part = to_bytes(half.share(start, _encoded(place, name, terms, dither, start, length)))
            digests.append(sha256_hex(part))
            place.upload(name, index, part)
        half.commit()
    manifest = SharesManifest(
        silo=name,
        terms=terms.digest,
        model=MODEL,
        vector_length=terms.vector_length,
        parts=tuple(digests),
        seeds={server: sha256_hex(sealed) for server, sealed in half.sealed_seeds.items()},
        ledger_head=EMPTY,
    )
    toss, reveals = yield manifest, half.sealed_seeds
    coin = settle(toss, reveals)
    with place.on("prove"):
        half.open_coin(coin)
        for _, start, length in _parts(terms):
            half.project(start, _encoded(place, name, terms, dither, start, length))
        witness = half.prove()
    yield (
        ProofManifest(
            silo=name,
            shares=sha256_hex(canonical_bytes(manifest)),
            coin=coin.digest,
            witness=sha256_hex(to_bytes(witness)),
        ),
        witness,
    )


def _encoded(
    place: Place, name: SiloId, terms: ValidityTerms, dither: Dither, start: int, length: int
) -> NDArray[np.int64]:
    """One stretch; the same dither in both passes gives the same elements, so that none need be kept."""
    values = place.values(name, start, min(length, place.params - start))
    with place.on("encode"):
        encoded = encode(values, 1.0, terms, dither.at(start, len(values)))
        return encoded if len(values) == length else np.append(encoded, encode_weight(1.0, terms))


def _server(
    place: Place, server: ServerId, terms: ValidityTerms, context: Context, key: SealingKey
) -> Script:
    """Check every silo's shares, judge by all servers' messages, and add up what this server holds."""
    seeds, witnesses, *tosses = yield
    first, coins = server == SERVERS[0], [settle(*tossed) for tossed in tosses]
    shares = {
        name: unseal_seed(sealed[server], key, Binding(context, terms.digest, MODEL, name), server)
        for name, sealed in seeds.items()
    }
    messages = {}
    for name, seed in shares.items():
        half = ValidityServerHalf(terms, seed, (coins[0], coins[1]), first)
        for index, start, length in _parts(terms):
            half.absorb(start, from_bytes(place.store.get(name, index), length) if first else None)
        messages[name] = half.message(witnesses.get(name))
    checks = yield messages
    for name in place.silos:
        judge(terms, coins[1], name, {other: said[name] for other, said in checks.items()})
    for index, start, length in _parts(terms):
        if first:
            held = (from_bytes(place.store.get(name, index), length) for name in place.silos)
        else:
            held = (seed.vector(start, length) for seed in shares.values())
        place.store.put(server, index, to_bytes(accumulate(held, length)))
    yield


def _aggregator(place: Place, terms: ValidityTerms) -> Script:
    yield
    for index, start, length in _parts(terms):
        shares = [from_bytes(place.store.get(server, index), length) for server in SERVERS]
        opened: Field = add(*shares)
        place.store.put(SUM, index, to_bytes(opened[: max(0, place.params - start)]))
    yield
