"""One round under homomorphic encryption: silos encrypt under their one key, the server adds, silos open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from secagg_place import MODEL, SUM, Opened, Place, Script, widest_terms

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.ids import Digest, SiloId
from privacy.plan import VectorTerms
from privacy.secagg.additive import ring_to_bytes
from privacy.secagg.encoding import decode, encode_fresh
from privacy.secagg.he.framing import he_stretches
from privacy.secagg.he.keys import HeKey, KeyUse, make_key
from privacy.secagg.he.messages import CiphertextManifest, SumManifest
from privacy.secagg.he.parameters import PARAMETERS, assert_fits
from privacy.secagg.he.silo_half import HeSiloHalf
from privacy.secagg.he.sum_half import HeSumHalf
from privacy.secagg.keystream import DitherStream

ROWS = {"bfv": "bfv-2048-40", "ckks": "ckks-4096-36"}
_CIPHER_SUM = "ciphertext-sum"


def homomorphic(scheme: str, place: Place) -> Opened:
    """``bfv`` or ``ckks``. The first silo's opening is what is checked; the others open nothing here."""
    row = PARAMETERS[ROWS[scheme]]
    terms = widest_terms(lambda terms: assert_fits(row, terms, len(place.silos)))
    use = KeyUse("benchmark", 1, Digest("00" * 32), row)
    key = make_key(use)
    silos = {name: place.silo(name, _silo(place, name, key, terms)) for name in place.silos}
    manifests = {name: party.ask() for name, party in silos.items()}
    digests = place.server(_server(place, row.name)).ask(manifests)
    summed = SumManifest(
        parameters=row.name,
        key=key.id,
        vector_length=place.params,
        survivors=place.silos,
        manifests=tuple(sha256_hex(canonical_bytes(manifest)) for manifest in manifests.values()),
        parts=tuple(digests),
    )
    place.costs.up_bytes += len(canonical_bytes(manifests[place.first]))
    place.costs.down_bytes = silos[place.first].ask(summed) + len(canonical_bytes(summed))
    cut = tuple((piece.index, piece.start, piece.length) for piece in he_stretches(row, place.params))
    return Opened(terms.scale_bits, cut, lambda raw: decode(np.frombuffer(raw, dtype="<u4"), terms))


def _silo(place: Place, name: SiloId, key: HeKey, terms: VectorTerms) -> Script:
    yield
    row = key.use.parameters
    half = HeSiloHalf(key, key.use, terms, place.params, len(place.silos))
    dither, digests = DitherStream(), []
    with place.on("update"):
        for piece in he_stretches(row, place.params):
            values = place.values(name, piece.start, piece.length)
            with place.on("encode"):
                encoded = encode_fresh(values, 1.0, terms, dither)
            part = half.encrypt(piece.index, encoded)
            digests.append(sha256_hex(part))
            place.upload(name, piece.index, part)
    summed = yield CiphertextManifest(
        silo=name,
        model=MODEL,
        parameters=row.name,
        key=key.id,
        vector_length=place.params,
        parts=tuple(digests),
        ledger_head=EMPTY,
    )
    received = 0
    with place.on("open"):
        for piece in he_stretches(row, place.params):
            part = place.store.get(_CIPHER_SUM, piece.index)
            assert sha256_hex(part) == summed.parts[piece.index]
            place.store.put(SUM, piece.index, ring_to_bytes(half.open(piece.index, part, len(place.silos))))
            received += len(part)
    yield received


def _signed_parts(
    place: Place, manifests: Mapping[SiloId, CiphertextManifest], index: int
) -> Iterator[bytes]:
    for name, manifest in manifests.items():
        part = place.store.get(name, index)
        with place.on("check"):
            assert sha256_hex(part) == manifest.parts[index]
        yield part


def _server(place: Place, parameters: str) -> Script:
    manifests = yield
    half, digests = HeSumHalf(parameters, len(place.silos)), []
    for piece in he_stretches(PARAMETERS[parameters], place.params):
        total = half.total(_signed_parts(place, manifests, piece.index), piece)
        digests.append(sha256_hex(total))
        place.store.put(_CIPHER_SUM, piece.index, total)
    yield digests
