"""Random projections with weights −1, 0, 1 (probability 1/4, 1/2, 1/4) of a vector or of a share of it.

The weight of coordinate i in projection t is b₁ + b₂ − 1 for two bits of the coin's keystream; 2r bits a
coordinate, coordinate after coordinate. Weights are never ±1 alone: a vector of two halves of p would pass.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.keystream import CHUNK_ELEMENTS, keystream
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.field import FIELD_BYTES, MODULUS, Field

_BLOCK = 1 << 13
"""Coordinates expanded at a time."""
_SLICE = 1 << 8
"""Coordinates in one matrix product: 255 · 2^8 < 2^24 keeps float32 products of 8-bit limbs exact, and it is
small enough that OpenBLAS does not start threads, which would spin longer than they work."""
_WORD_PROJECTIONS = 16


def _weights_of_a_byte() -> NDArray[np.complex128]:
    """Byte → its four weights as float32, held as one 16-byte item: a gather moves all four at once."""
    byte = np.arange(256, dtype=np.uint8)
    pairs = np.stack([(byte >> shift & 1) + (byte >> (shift + 1) & 1) for shift in (0, 2, 4, 6)], axis=1)
    return (pairs.astype(np.float32) - np.float32(1.0)).view(np.complex128).reshape(256)


_TABLE = _weights_of_a_byte()


class Projection:
    """Running ⟨z_t, share⟩ for t < r; parts may come in any order, each once."""

    def __init__(self, coin: Coin, projections: int) -> None:
        self._key = coin.key("projection")
        self._projections = projections
        self._sums = np.zeros((FIELD_BYTES, projections), dtype=np.int64)

    def absorb(self, start: int, coordinates: Field) -> None:
        """Add coordinates [start, start + len); ``start`` is a multiple of 2^18."""
        for offset in range(0, len(coordinates), CHUNK_ELEMENTS):
            chunk = coordinates[offset : offset + CHUNK_ELEMENTS]
            raw = self._keystream_bytes(start + offset, len(chunk))
            for at in range(0, len(chunk), _BLOCK):
                block = np.ascontiguousarray(chunk[at : at + _BLOCK], dtype="<u8")
                octets = block.view(np.uint8).reshape(len(block), FIELD_BYTES).astype(np.float32)
                z = self._expand(raw, at, len(block))
                whole = len(block) // _SLICE * _SLICE
                slices = octets[:whole].reshape(-1, _SLICE, FIELD_BYTES).transpose(0, 2, 1)
                sums = slices @ z[:whole].reshape(-1, _SLICE, self._projections)
                rest = octets[whole:].T @ z[whole:]
                self._sums += sums.sum(axis=0, dtype=np.float64).astype(np.int64) + rest.astype(np.int64)

    def values(self) -> list[int]:
        """Each projection mod p."""
        return [
            sum(int(octet) << (8 * place) for place, octet in enumerate(column)) % MODULUS
            for column in self._sums.T
        ]

    def _keystream_bytes(self, start: int, length: int) -> NDArray[np.uint8]:
        words = self._projections // _WORD_PROJECTIONS
        return keystream(self._key, start * words, length * words).view(np.uint8)

    def _expand(self, raw: NDArray[np.uint8], start: int, length: int) -> NDArray[np.float32]:
        width = self._projections // 4
        octets = raw[start * width : (start + length) * width]
        return _TABLE[octets].view(np.float32).reshape(length, self._projections)


def weights(coin: Coin, projections: int, length: int) -> NDArray[np.int64]:
    """z as a (length, r) matrix, for tests and for another implementation to compare with."""
    identity = Projection(coin, projections)
    raw = identity._keystream_bytes(0, length)
    return identity._expand(raw, 0, length).astype(np.int64)
