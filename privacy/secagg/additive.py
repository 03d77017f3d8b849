"""Additive secret sharing over k ≥ 2 share servers: one masked vector and k − 1 sealed seeds.

1. The silo draws a seed for each server but the first and sends the first one
   x − Σ_s PRG(seed_s) mod 2^32, which is uniform to whoever lacks one of the seeds.
2. Each other server gets its seed under HPKE, bound to context, silo, server and the model digest that
   the *silo* computed: a silo that was sent another model produces noise, not a leak
   (Pasquini et al. 2021, arXiv 2111.07380).
3. A server's share of the sum is Σ over the survivors of what it holds; all k shares add up to Σ x.

Withstands k − 1 colluding servers together with any silos. A silo that drops out costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privacy.errors import MalformedMessage, NotFound, OutOfOrder, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.sealing import seal, unseal
from privacy.secagg.keystream import SEED_BYTES, apply_streams, derive_key
from privacy.secagg.vectors import MODEL, VectorName, purpose_for

RING_BYTES = 4
Ring = NDArray[np.uint32]


def _binding(purpose: str, context: Context, model: Digest, silo: SiloId, server: ServerId) -> bytes:
    """What a seed and its keystream are good for; every field has a fixed or delimited form."""
    return b"\x00".join(
        [
            b"sealsum/additive/v1",
            purpose.encode(),
            bytes.fromhex(context),
            bytes.fromhex(model),
            silo.encode(),
            server.encode(),
        ]
    )


def _mask_key(
    seed: bytes,
    context: Context,
    model: Digest,
    silo: SiloId,
    server: ServerId,
    vector: VectorName = MODEL,
) -> bytes:
    return derive_key(seed, _binding(purpose_for("mask", vector), context, model, silo, server))


class AdditiveSiloHalf:
    """One silo's sharing of one update. Seeds live in this object only and are sealed once."""

    def __init__(
        self,
        context: Context,
        model: Digest,
        silo: SiloId,
        seed_servers: Mapping[ServerId, str],
        vectors: Sequence[VectorName] = (MODEL,),
    ) -> None:
        """``seed_servers`` maps every server but the first to its public sealing key (hex).

        ``vectors`` are the round's: one seed a server serves them all, each under a key of its own.
        """
        if not seed_servers:
            raise Unprocessable("servers: additive sharing needs at least two share servers")
        seeds = {server: os.urandom(SEED_BYTES) for server in seed_servers}
        self._keys = {
            vector: [_mask_key(seed, context, model, silo, server, vector) for server, seed in seeds.items()]
            for vector in vectors
        }
        self._next = dict.fromkeys(vectors, 0)
        self.sealed_seeds: dict[ServerId, bytes] = {
            server: seal(seeds[server], public, _binding("seed", context, model, silo, server))
            for server, public in seed_servers.items()
        }

    def share(self, start: int, encoded: Ring, vector: VectorName = MODEL) -> Ring:
        """The first server's share of elements [start, start + len): ``encoded`` minus every mask.

        Parts come in order: two updates under one mask would give away their difference.

        Raises:
            NotFound: this round has no vector of that name. OutOfOrder: these elements are shared already.
        """
        if vector not in self._keys:
            raise NotFound(f"vector {vector!r}: this round has none of that name")
        if start < self._next[vector]:
            raise OutOfOrder(f"vector {vector}: element {start} is shared already; send the same bytes again")
        self._next[vector] = start + len(encoded)
        return apply_streams(encoded, start, subtracted=self._keys[vector])


class VectorSumHalf:
    """The first server's half: it adds vector shares, element-wise mod 2^32."""

    @staticmethod
    def total(parts: Iterable[bytes], length: int) -> Ring:
        """Sum the same stretch of every survivor's share.

        Raises:
            Unprocessable: a part is not ``length`` elements long.
        """
        shares = (ring_from_bytes(part, length) for part in parts)
        total = np.array(next(shares, np.zeros(length)), dtype="<u4")
        for share in shares:
            total += share
        return total


class SeedSumHalf:
    """Another server's half: it expands survivors' seeds and adds the keystreams."""

    def __init__(
        self,
        seeds: Sequence[tuple[SiloId, bytes]],
        context: Context,
        model: Digest,
        server: ServerId,
        vector: VectorName = MODEL,
    ) -> None:
        """``vector`` names which of the round's vectors this half sums."""
        self._keys = [_mask_key(seed, context, model, silo, server, vector) for silo, seed in seeds]

    def total(self, start: int, length: int) -> Ring:
        """Elements [start, start + length) of the sum of the survivors' masks."""
        total = np.zeros(length, dtype="<u4")
        return apply_streams(total, start, added=self._keys, out=total)


def unseal_seed(
    sealed: bytes, key: SealingKey, context: Context, model: Digest, silo: SiloId, server: ServerId
) -> bytes:
    """Open a seed sealed to this server.

    Raises:
        MalformedMessage: for another server, silo, round or model, or of another length.
    """
    seed = unseal(sealed, key, _binding("seed", context, model, silo, server))
    if len(seed) != SEED_BYTES:
        raise MalformedMessage(f"sealed seed: expected {SEED_BYTES} bytes, got {len(seed)}")
    return seed


def combine(shares: Iterable[bytes], length: int) -> Ring:
    """Add every server's share of one stretch: the sum of the survivors' encoded updates."""
    return VectorSumHalf.total(shares, length)


def ring_from_bytes(raw: bytes, length: int) -> Ring:
    """Read little-endian ring elements.

    Raises:
        Unprocessable: ``raw`` is not exactly ``length`` elements.
    """
    if len(raw) != RING_BYTES * length:
        raise Unprocessable(f"share: expected {RING_BYTES * length} bytes, got {len(raw)}")
    return np.frombuffer(raw, dtype="<u4")


def ring_to_bytes(elements: Ring) -> bytes:
    """Little-endian bytes of ring elements."""
    return elements.astype("<u4", copy=False).tobytes()
