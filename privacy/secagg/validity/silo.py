"""A silo's half of a validity round: share once, then prove once.

1. ``share`` each part of the encoded vector; ``commit`` when all are through. The shares and sealed seeds
   go to the servers, named by digest in one signed manifest.
2. When every silo of the round is fixed, the servers toss coin 1. ``project`` each part again.
3. ``prove`` answers coin 1 with the share of the witness for server 0; the others expand theirs from seeds.
   Only when the witnesses are fixed do the servers toss coin 2.

Vectors are int64, encoded (``encoding.py``): d coordinates and, as element d, the weight.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privacy.errors import OutOfOrder, Unprocessable
from privacy.ids import ServerId
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.keystream import SEED_BYTES
from privacy.secagg.validity.bits import prove_bits, spell
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.field import MODULUS, Field, from_signed
from privacy.secagg.validity.projection import Projection
from privacy.secagg.validity.sharing import (
    PART_ELEMENTS,
    Binding,
    SeedShares,
    accumulate,
    field_stream,
    mask,
    seal_seed,
)
from privacy.secagg.validity.squares import SquaresProver
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import Witness
from privacy.secagg.vectors import MODEL, VectorName


class ValiditySiloHalf:
    """One silo's sharing and proof of one vector. Its seeds live in this object and its ``further`` only."""

    def __init__(
        self,
        terms: ValidityTerms,
        binding: Binding,
        servers: Mapping[ServerId, str],
        further: Mapping[VectorName, ValidityTerms] = MappingProxyType({}),
    ) -> None:
        """``servers`` maps each share server, in the plan's order, to its public sealing key (hex).

        ``further`` names the round's other vectors: each gets a half here, under the same sealed seeds and
        keys of its own, which is committed, opened to the same coins and proven like this one.
        """
        if len(servers) < 2:
            raise Unprocessable("servers: validity on shares needs at least two share servers")
        if binding.terms != terms.digest or binding.vector != MODEL or MODEL in further:
            raise Unprocessable("binding: it names other validity terms, or another vector than the first")
        seeds = {server: os.urandom(SEED_BYTES) for server in servers}
        self.sealed_seeds: dict[ServerId, bytes] = {
            server: seal_seed(seeds[server], public, binding, server) for server, public in servers.items()
        }
        shares = [SeedShares(server, binding, seed) for server, seed in seeds.items()]
        self._start(terms, binding, shares)
        self.further: dict[VectorName, ValiditySiloHalf] = {
            vector: self._half_of(vector, theirs, shares) for vector, theirs in further.items()
        }

    def _half_of(
        self, vector: VectorName, terms: ValidityTerms, shares: list[SeedShares]
    ) -> ValiditySiloHalf:
        half = copy(self)  # the same sealed seeds; all else starts anew
        theirs = [share.for_vector(vector, terms.digest) for share in shares]
        half._start(terms, theirs[0].binding, theirs)
        half.further = {}
        return half

    def _start(self, terms: ValidityTerms, binding: Binding, shares: list[SeedShares]) -> None:
        self._terms = terms
        self._binding = binding
        self._seeds = shares
        self._squares = SquaresProver(terms)
        self._weight = -1
        self._next = 0
        self._squared_norm = -1
        self._projection: Projection | None = None
        self._coin: Coin | None = None

    def share(self, start: int, encoded: NDArray[np.int64]) -> Field:
        """Server 0's share of the part that begins at ``start``; parts come in order.

        Raises:
            OutOfOrder: not the next part, or not all of it. UpdateOutOfRange: the weight is not in [0, S].
        """
        self._require_part(start, len(encoded))
        coordinates = encoded[: max(0, self._terms.dimension - start)]
        if len(coordinates) < len(encoded):
            self._weight = int(encoded[-1])
            if not 0 <= self._weight <= self._terms.weight_scale:
                raise UpdateOutOfRange(f"update: expected a weight in [0, {self._terms.weight_scale}]")
        rows = -(-len(coordinates) // self._terms.columns)
        part = start // PART_ELEMENTS
        blinds = [seed.blinds(part, rows) for seed in self._seeds]
        self._squares.absorb(
            coordinates,
            accumulate((u for u, _ in blinds), rows),
            accumulate((w for _, w in blinds), rows),
        )
        return mask(from_signed(encoded), (seed.vector(start, len(encoded)) for seed in self._seeds[1:]))

    def commit(self) -> None:
        """End of the vector. Nothing may leave the silo before this has passed.

        Raises:
            OutOfOrder: parts are missing. UpdateOutOfRange: ‖x‖ is beyond B; nothing is clipped here.
        """
        if self._next != self._terms.vector_length:
            raise OutOfOrder(
                f"update: expected {self._terms.vector_length} elements, got {self._next}; share all parts"
            )
        squared = self._squares.squared_norm()
        if squared > self._terms.encoded_bound**2:
            raise UpdateOutOfRange("update: its norm is beyond norm_bound; clip before noise is accounted")
        self._squared_norm = round(squared)

    def open_coin(self, coin: Coin) -> None:
        """Take coin 1, once. The caller has settled it itself from the servers' signed reveals.

        Raises:
            OutOfOrder: before ``commit``, a second coin, or one of another step, round or set of servers.
        """
        if self._squared_norm < 0 or self._coin is not None:
            raise OutOfOrder("coin: expected after commit, and only one")
        if coin.toss.step != 1 or coin.toss.context != self._binding.context:
            raise OutOfOrder("coin: expected that of step 1 of this round")
        if set(coin.toss.servers) != set(self.sealed_seeds):
            raise OutOfOrder("coin: expected one tossed by exactly the servers that hold this silo's shares")
        self._coin = coin
        self._projection = Projection(coin, self._terms.projections)
        self._next = 0

    def project(self, start: int, encoded: NDArray[np.int64]) -> None:
        """Second pass over the same parts, in order.

        Raises:
            OutOfOrder: before ``open_coin``, or not the next part.
        """
        if self._projection is None:
            raise OutOfOrder("project: expected after coin 1")
        self._require_part(start, len(encoded))
        self._projection.absorb(start, from_signed(encoded[: max(0, self._terms.dimension - start)]))

    def prove(self) -> Field:
        """Server 0's share of the witness: uint64[witness_length].

        Raises:
            OutOfOrder: before all parts are projected, or a second time.
            UpdateOutOfRange: a projection is out of range (for an honest vector below 2^-84): drop out.
        """
        if self._projection is None or self._coin is None or self._next != self._terms.vector_length:
            raise OutOfOrder("prove: expected once, after all parts were projected")
        bits = self._bits(self._projection.values())
        self._projection = None
        beta = int(field_stream(os.urandom(SEED_BYTES), 0, 1)[0])
        witness = Witness(
            bits, self._squares.proof(), prove_bits(bits, beta, self._terms.domain), beta
        ).elements()
        coin = self._coin.digest
        return mask(witness, (seed.witness(coin, len(witness)) for seed in self._seeds[1:]))

    def _bits(self, projections: list[int]) -> Field:
        terms = self._terms
        edge = 1 << terms.projection_bits
        shifted = [(value + edge - 1) % MODULUS for value in projections]
        if max(shifted) >= 2 * edge:
            raise UpdateOutOfRange("update: a random projection is out of range; take no part in this round")
        return np.concatenate(
            [
                spell([self._squared_norm, terms.encoded_bound**2 - self._squared_norm], terms.norm_bits),
                spell([self._weight, terms.weight_scale - self._weight], terms.weight_bits),
                spell(shifted, terms.range_bits),
            ]
        )

    def _require_part(self, start: int, length: int) -> None:
        expected = min(PART_ELEMENTS, self._terms.vector_length - start)
        if start != self._next or length != expected:
            raise OutOfOrder(
                f"part: expected {expected} elements from {self._next}, got {length} from {start}"
            )
        self._next = start + length
