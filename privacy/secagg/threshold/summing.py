"""The server's half after the uploads: add ciphertexts, collect partial decryptions, open the one sum.

Adding is arithmetic on residues and needs neither a key nor OpenFHE. Opening needs OpenFHE and every holder's
partial decryption; what comes out is integers, rounded in the worker for CKKS.

A silo whose partial decryption is not what it should be makes the sum noise, which the count in slot 0, the
bound and the padding show. One that shifts it on purpose shifts the sum, as a wrong update would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from privacy.canonical import sha256_hex
from privacy.errors import OutOfOrder
from privacy.identity import SigningKey
from privacy.ids import Digest, SiloId
from privacy.secagg.additive import Ring
from privacy.secagg.he.parameters import largest_element
from privacy.secagg.pairwise.collecting import one_each
from privacy.secagg.threshold.collecting import ManifestsClosed
from privacy.secagg.threshold.faults import BadSum, KeyholderMissing
from privacy.secagg.threshold.messages import PartialDecryption, SumManifest, open_from_silo, sign_sum
from privacy.secagg.threshold.parts import threshold_part_count, threshold_stretch
from privacy.secagg.threshold.polynomials import Polynomials, added, from_wire, to_wire
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope, Verified


class Adder:
    """Adds the cohort's ciphertexts part by part; memory holds one half of one silo's part and one of the
    sum."""

    def __init__(self, closed: ManifestsClosed) -> None:
        self._closed = closed
        self._digests: dict[int, tuple[Digest, Digest]] = {}

    def total(
        self, index: int, bodies: Iterable[tuple[SiloId, bytes]], masks: Iterable[tuple[SiloId, bytes]]
    ) -> tuple[bytes, bytes]:
        """(bodies, masks) of part ``index`` of the sum, from every silo's.

        Raises:
            BadSum: a silo is missing or there twice, or its bytes are not the ones it signed.
            MalformedMessage: no polynomials of this ring.
        """
        manifests = self._closed.manifests
        body = self._half(index, bodies, {silo: it.message.bodies[index] for silo, it in manifests.items()})
        mask = self._half(index, masks, {silo: it.message.masks[index] for silo, it in manifests.items()})
        self._digests[index] = (sha256_hex(body), sha256_hex(mask))
        return body, mask

    def _half(
        self, index: int, pieces: Iterable[tuple[SiloId, bytes]], signed: Mapping[SiloId, Digest]
    ) -> bytes:
        terms = self._closed.terms
        stretch = threshold_stretch(terms.row, index, terms.vector_length)
        waited = dict(signed)

        def checked() -> Iterable[Polynomials]:
            for silo, raw in pieces:
                if waited.pop(silo, None) != sha256_hex(raw):
                    raise BadSum(f"part {index} of silo {silo}: not the bytes it signed, once")
                yield from_wire(f"part {index} of silo {silo}", terms.row, raw, stretch.ciphertexts)

        total = added(terms.row, checked())
        if waited:
            raise BadSum(f"part {index}: nothing of {', '.join(sorted(waited))}; the round ends")
        return to_wire(terms.row, total)

    def sign(self, key: SigningKey) -> Envelope:
        """The server's manifest of the sum; raises OutOfOrder while parts are missing."""
        terms = self._closed.terms
        count = threshold_part_count(terms.row, terms.vector_length)
        if len(self._digests) != count:
            raise OutOfOrder(f"sum: expected {count} parts, got {len(self._digests)}")
        message = SumManifest(
            joint_key=self._closed.key.digest,
            silos=tuple(self._closed.manifests),
            manifests=tuple(item.envelope.body_digest for item in self._closed.manifests.values()),
            bodies=tuple(self._digests[index][0] for index in range(count)),
            masks=tuple(self._digests[index][1] for index in range(count)),
        )
        return sign_sum(message, terms, key)


@dataclass(frozen=True)
class PartialsClosed:
    """Every holder's partial decryption of the one sum."""

    closed: ManifestsClosed
    summed: Envelope
    partials: Mapping[SiloId, Verified[PartialDecryption]]


def accept_partial(
    closed: ManifestsClosed, summed: Envelope, envelope: Envelope
) -> Verified[PartialDecryption]:
    """Step 4, one silo: a partial decryption of this sum.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message. BadSum: of another sum or length.
        KeyholderMissing: its signer holds no share of the key.
    """
    partial = open_from_silo(envelope, PartialDecryption, closed.terms)
    if partial.sender not in closed.key.holders:
        raise KeyholderMissing(f"partial of silo {partial.sender}: it holds no share of the joint key")
    count = threshold_part_count(closed.terms.row, closed.terms.vector_length)
    if partial.message.sum != summed.body_digest or len(partial.message.parts) != count:
        raise BadSum(f"partial of silo {partial.sender}: it is of another sum")
    return partial


def close_partials(
    closed: ManifestsClosed, summed: Envelope, partials: Iterable[Verified[PartialDecryption]]
) -> PartialsClosed:
    """All of them, or the round is over.

    Raises:
        Equivocation: two of one silo. KeyholderMissing: a holder has sent none.
    """
    by_silo = one_each("partial", ((SiloId(item.sender), item) for item in partials))
    missing = sorted(set(closed.key.holders) - set(by_silo))
    if missing:
        raise KeyholderMissing(
            f"partial: nothing of {', '.join(missing)}; without them nothing opens, start another round"
        )
    return PartialsClosed(closed, summed, by_silo)


class Fuser:
    """Opens the sum part by part, each once."""

    def __init__(self, partials: PartialsClosed, worker: Worker) -> None:
        self._partials, self._worker = partials, worker
        self._opened: set[int] = set()

    def open(self, index: int, bodies: bytes, partials: Iterable[tuple[SiloId, bytes]]) -> Ring:
        """Part ``index`` of the sum, uint32[length] mod 2^32, to be decoded like any other scheme's.

        ``bodies`` is what ``Adder.total`` came to. (1) The part was not opened before; (2) each partial
        decryption is the one that its silo signed, and all are there; (3) what they open to is integers
        (CKKS); (4) slot 0 of each ciphertext counts the contributors; (5) no element exceeds what so many
        honest updates reach; (6) what pads the last one is zero.

        Raises:
            OutOfOrder: (1). BadSum: (2) to (6). MalformedMessage: no polynomials of this ring. WorkerFailed.
        """
        terms = self._partials.closed.terms
        row, stretch = terms.row, threshold_stretch(terms.row, index, terms.vector_length)
        # (1)
        if index in self._opened:
            raise OutOfOrder(f"sum, part {index}: it is open already; a round opens one sum")
        self._opened.add(index)
        # (2)
        waited = {silo: it.message.parts[index] for silo, it in self._partials.partials.items()}

        def checked() -> Iterable[Polynomials]:
            yield from_wire(f"sum, part {index}", row, bodies, stretch.ciphertexts)
            for silo, raw in partials:
                if waited.pop(silo, None) != sha256_hex(raw):
                    raise BadSum(f"partial, part {index} of silo {silo}: not the bytes it signed, once")
                yield from_wire(f"partial, part {index} of silo {silo}", row, raw, stretch.ciphertexts)

        fused = added(row, checked())
        if waited:
            raise BadSum(f"partial, part {index}: nothing of {', '.join(sorted(waited))}; the round ends")
        # (3)
        blocks = self._worker.fuse(fused)
        # (4)
        contributors = len(self._partials.closed.manifests)
        if np.any(blocks[:, 0] != contributors):
            raise BadSum(
                f"sum, part {index}: it does not open to {contributors} updates; a silo's ciphertext or "
                "partial decryption is wrong, abort the round"
            )
        elements = blocks[:, 1:].reshape(-1)
        # (5)
        if np.any(np.abs(elements) > contributors * largest_element(terms.vector)):
            raise BadSum(f"sum, part {index}: an element is beyond {contributors} times the bound")
        # (6)
        if np.any(elements[stretch.length :]):
            raise BadSum(f"sum, part {index}: expected zeros after the last element")
        return elements[: stretch.length].astype(np.int32).view(np.uint32)
