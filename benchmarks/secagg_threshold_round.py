"""One round under a joint key: silos make it, encrypt under it, and open the one sum together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from secagg_place import MODEL, SUM, Opened, Place, Script, fresh_context, size_of, widest_terms
from secagg_workers import worker_of

from privacy.chain import EMPTY
from privacy.identity import SigningKey
from privacy.ids import PartyId, SiloId
from privacy.plan import CohortMember
from privacy.secagg.additive import RING_BYTES, ring_to_bytes
from privacy.secagg.encoding import decode, encode_fresh
from privacy.secagg.keystream import DitherStream
from privacy.secagg.threshold.collecting import (
    accept_commit,
    accept_manifest,
    accept_reveal,
    close_commits,
    close_manifests,
    close_reveals,
)
from privacy.secagg.threshold.parameters import PARAMETERS, assert_fits
from privacy.secagg.threshold.parts import threshold_stretches
from privacy.secagg.threshold.silo_encrypting import Encrypter, admit_cohort, sign_manifest
from privacy.secagg.threshold.silo_keys import begin, join, reveal
from privacy.secagg.threshold.silo_opening import PartialOpener, sign_partial
from privacy.secagg.threshold.silo_state import SiloState
from privacy.secagg.threshold.summing import Adder, Fuser, accept_partial, close_partials
from privacy.secagg.threshold.terms import ThresholdTerms

ROWS = {"threshold_bfv": "tbfv-8192-168", "threshold_ckks": "tckks-4096-60"}
_CIPHER_SUM = "ciphertext-sum"
_BODIES, _MASKS = 0, 1
Keys = Mapping[SiloId, SigningKey]


def threshold(scheme: str, place: Place) -> Opened:
    """``threshold_bfv`` or ``threshold_ckks``, its joint key made in the round, as always."""
    row = PARAMETERS[ROWS[scheme]]
    keys = {name: SigningKey.generate() for name in place.silos}
    server_key = SigningKey.generate()
    terms = ThresholdTerms.model_validate(
        {
            "context": fresh_context(),
            "scheme": scheme,
            "parameters": row.name,
            "model": MODEL,
            "server": PartyId("aggregator"),
            "server_key": server_key.verify_key,
            "cohort": tuple(
                CohortMember(silo=name, verify_key=key.verify_key) for name, key in sorted(keys.items())
            ),
            "vector_length": place.params,
            "vector": widest_terms(lambda vector: assert_fits(row, vector, len(place.silos))),
            "minimum": len(place.silos),
        }
    )
    silos = {name: place.silo(name, _silo(place, name, keys, terms)) for name in place.silos}
    server = place.server(_server(place, terms, server_key))
    commits = server.ask([party.ask() for party in silos.values()])
    reveals = server.ask([party.ask(commits) for party in silos.values()])
    manifests = server.ask([party.ask(reveals) for party in silos.values()])
    for party in silos.values():
        party.ask(manifests)
    summed = server.ask()
    partials = [party.ask(summed) for party in silos.values()]
    server.ask(partials)
    own = [
        one for relay in (commits, reveals, manifests, partials) for one in relay if one.sender == place.first
    ]
    place.costs.up_bytes += size_of(*own)
    place.costs.down_bytes = size_of(*commits, *reveals, *manifests, summed) + RING_BYTES * place.params
    pieces = tuple(threshold_stretches(row, place.params))
    # The masks of all the others: each silo adds them up itself.
    place.costs.down_bytes += (len(silos) - 1) * sum(piece.half_bytes(row) for piece in pieces)
    cut = tuple((piece.index, piece.start, piece.length) for piece in pieces)
    vector = terms.vector
    return Opened(vector.scale_bits, cut, lambda raw: decode(np.frombuffer(raw, dtype="<u4"), vector))


def _silo(place: Place, name: SiloId, keys: Keys, terms: ThresholdTerms) -> Script:
    worker, key = worker_of(terms.parameters), keys[name]
    yield
    step = begin(
        terms,
        name,
        key,
        worker,
        pinned={silo: one.verify_key for silo, one in keys.items()},
        pinned_server=terms.server_key,
        colluding_silos=0,
    )
    stored = step.state.to_bytes()
    commits = yield step.messages[0]
    step = reveal(SiloState.from_bytes(stored), key, commits)
    stored = step.state.to_bytes()
    reveals = yield step.messages[0]
    state = join(SiloState.from_bytes(stored), reveals)
    with place.on("update"):
        encrypter, dither = Encrypter(state, worker, MODEL), DitherStream()
        for piece in threshold_stretches(terms.row, place.params):
            values = place.values(name, piece.start, piece.length)
            with place.on("encode"):
                encoded = encode_fresh(values, 1.0, terms.vector, dither)
            for half, raw in enumerate(encrypter.encrypt(piece.index, encoded)):
                place.upload(name, 2 * piece.index + half, raw)
    step = sign_manifest(state, key, encrypter, EMPTY)
    stored = step.state.to_bytes()
    manifests = yield step.messages[0]
    state = admit_cohort(SiloState.from_bytes(stored), manifests)
    state.assert_may_upload()
    summed = yield None
    with place.on("open"):
        opener = PartialOpener(state, worker, summed, manifests)
        for piece in threshold_stretches(terms.row, place.params):
            partial = opener.decrypt(piece.index, _of_each(place, piece.index, _MASKS))
            place.store.put(_partial(name), piece.index, partial)
            if name == place.first:
                place.costs.up_bytes += len(partial)
    yield sign_partial(state, key, opener).messages[0]


def _server(place: Place, terms: ThresholdTerms, key: SigningKey) -> Script:
    worker = worker_of(terms.parameters)
    messages = yield
    commits = close_commits(terms, [accept_commit(terms, one) for one in messages])
    messages = yield commits.relay
    reveals = close_reveals(commits, [accept_reveal(commits, one) for one in messages])
    messages = yield reveals.relay
    closed = close_manifests(reveals, [accept_manifest(reveals, one) for one in messages])
    yield closed.relay
    adder = Adder(closed)
    for piece in threshold_stretches(terms.row, place.params):
        bodies, _ = adder.total(
            piece.index, _of_each(place, piece.index, _BODIES), _of_each(place, piece.index, _MASKS)
        )
        place.store.put(_CIPHER_SUM, piece.index, bodies)
    summed = adder.sign(key)
    messages = yield summed
    partials = close_partials(closed, summed, [accept_partial(closed, summed, one) for one in messages])
    fuser = Fuser(partials, worker)
    for piece in threshold_stretches(terms.row, place.params):
        bodies = bytes(place.store.get(_CIPHER_SUM, piece.index))
        shares = ((name, bytes(place.store.get(_partial(name), piece.index))) for name in place.silos)
        place.store.put(SUM, piece.index, ring_to_bytes(fuser.open(piece.index, bodies, shares)))
    yield None


def _of_each(place: Place, index: int, half: int) -> Iterator[tuple[SiloId, bytes]]:
    """One half of every silo's ciphertexts of a part."""
    for name in place.silos:
        yield name, bytes(place.store.get(name, 2 * index + half))


def _partial(name: SiloId) -> str:
    return f"{name}-partial"
