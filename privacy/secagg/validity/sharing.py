"""Field shares of a silo's vector and proof: one explicit share, the others expanded from sealed seeds.

Server 0 is sent value − Σ_{s ≥ 1} PRG(seed_s) (8 bytes an element) and every server, 0 included, one seed.
Masks that only have to be random (the blinds of the squares check) are a sum of one PRG a server, so they
cost no bytes. Keys are bound to context, terms, model, silo, server and purpose: shares of another
round, model or set of terms do not add up to anything.

A seed serves each vector of the round under keys of its own, and one witness for each. Sharing two
witnesses under one key would show server 0 their difference, so the witness key also depends on the coin that
the witness answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from privacy.errors import MalformedMessage, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.sealing import seal, unseal
from privacy.secagg.keystream import SEED_BYTES, derive_key, keystream
from privacy.secagg.validity.field import FIELD_BYTES, MODULUS, Field, add, subtract
from privacy.secagg.vectors import MODEL, VectorName, purpose_for
from privacy.wire.messages import PART_BYTES

PART_ELEMENTS = PART_BYTES // FIELD_BYTES
"""Field elements in a part: 2^20, a whole number of keystream chunks and of rows."""


@dataclass(frozen=True)
class Binding:
    """What a silo's seeds of one round are good for."""

    context: Context
    terms: Digest
    model: Digest
    """Digest of the model that the *silo* hashed: sent another one, it shares noise (arXiv 2111.07380)."""
    silo: SiloId
    vector: VectorName = MODEL
    """Which of the round's vectors; seeds are sealed under the binding of the first."""

    def label(self, purpose: str, server: ServerId) -> bytes:
        """Every field in a fixed or delimited form."""
        return b"\x00".join(
            [
                b"sealsum/validity/v1",
                purpose_for(purpose, self.vector).encode(),
                bytes.fromhex(self.context),
                bytes.fromhex(self.terms),
                bytes.fromhex(self.model),
                self.silo.encode(),
                server.encode(),
            ]
        )


@dataclass(frozen=True)
class SeedShares:
    """All shares that one server derives from its seed."""

    server: ServerId
    binding: Binding
    _seed: bytes = field(repr=False)

    def vector(self, start: int, length: int) -> Field:
        """Elements [start, start + length) of this server's mask of the vector; ``start`` opens a part."""
        return field_stream(self._key("vector"), start, length)

    def blinds(self, part: int, rows: int) -> tuple[Field, Field]:
        """This server's shares of u and w of each row in a part."""
        return (
            field_stream(self._key(f"blind-u/{part}"), 0, rows),
            field_stream(self._key(f"blind-w/{part}"), 0, rows),
        )

    def witness(self, coin: Digest, length: int) -> Field:
        """This server's mask of the witness that answers this coin."""
        return field_stream(self._key(f"witness/{coin}"), 0, length)

    def for_vector(self, vector: VectorName, terms: Digest) -> SeedShares:
        """The shares of another vector of the same round, under the same seed and no common key.

        Raises:
            Unprocessable: it is this vector.
        """
        if vector == self.binding.vector:
            raise Unprocessable(f"vector {vector}: expected another one than these shares are of")
        return replace(self, binding=replace(self.binding, vector=vector, terms=terms))

    def _key(self, purpose: str) -> bytes:
        return derive_key(self._seed, self.binding.label(purpose, self.server))


def field_stream(key: bytes, start: int, length: int) -> Field:
    """Elements [start, start + length) of a stream that is exactly uniform on [0, p).

    Two 32-bit words make one candidate; one of 2^32 candidates is ≥ p and is replaced from further streams
    at the same position, so the stream stays seekable. Reducing mod p instead would be visible in
    a million elements (distance 2^-12).
    """
    return reject_and_replace(
        lambda attempt: keystream(
            key if attempt == 0 else derive_key(key, f"retry/{attempt}".encode()), 2 * start, 2 * length
        ).view("<u8")
    )


def reject_and_replace(candidates: Callable[[int], Field]) -> Field:
    """The first candidate below p at each position, over attempts 0, 1, 2, …"""
    out = candidates(0)
    attempt = 0
    while (bad := out >= np.uint64(MODULUS)).any():
        attempt += 1
        out = np.where(bad, candidates(attempt), out)
    return out


def mask(value: Field, masks: Iterator[Field]) -> Field:
    """Server 0's share: ``value`` minus every other server's."""
    share = value
    for other in masks:
        share = subtract(share, other)
    return share


def accumulate(shares: Iterator[Field], length: int) -> Field:
    """Sum of shares: of one value over the servers, or of one server over the survivors.

    Raises:
        Unprocessable: a share is not ``length`` elements long.
    """
    out = np.zeros(length, dtype=np.uint64)
    for share in shares:
        if share.shape != (length,):
            raise Unprocessable(f"share: expected {length} elements, got {share.size}")
        out = add(out, share)
    return out


def seal_seed(seed: bytes, public_hex: str, binding: Binding, server: ServerId) -> bytes:
    """A seed that only this server opens, and only for this binding."""
    return seal(seed, public_hex, binding.label("seed", server))


def unseal_seed(sealed: bytes, key: SealingKey, binding: Binding, server: ServerId) -> SeedShares:
    """Open a seed sealed to this server.

    Raises:
        MalformedMessage: for another server, silo, round, model or terms, or of another length.
    """
    seed = unseal(sealed, key, binding.label("seed", server))
    if len(seed) != SEED_BYTES:
        raise MalformedMessage(f"sealed seed: expected {SEED_BYTES} bytes, got {len(seed)}")
    return SeedShares(server, binding, seed)
