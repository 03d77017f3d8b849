"""Coefficients below 2^bits as bytes, ``bits`` bits each, least significant first, without gaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privacy.errors import MalformedMessage

_MOST_BITS = 57
"""A coefficient shifted by up to 7 bits must fit a 64-bit word."""


def pack(coefficients: NDArray[np.uint64], bits: int) -> bytes:
    """uint64[n] below 2^bits → n·bits/8 bytes; n·bits is a multiple of 8 for whole groups."""
    period = _period(bits)
    groups = coefficients.astype("<u8").reshape(-1, period)
    packed = np.zeros((len(groups), period * bits // 8), dtype=np.uint8)
    for place, shift, first, last in _places(bits):
        shifted = np.ascontiguousarray(groups[:, place] << np.uint64(shift))
        packed[:, first:last] |= shifted.view(np.uint8).reshape(-1, 8)[:, : last - first]
    return packed.tobytes()


def unpack(raw: bytes, bits: int, modulus: int) -> NDArray[np.uint64]:
    """The inverse of ``pack``: uint64[n].

    Raises:
        MalformedMessage: a coefficient is not below the modulus: no polynomial of this ring.
    """
    period = _period(bits)
    packed = np.frombuffer(raw, dtype=np.uint8).reshape(-1, period * bits // 8)
    groups = np.empty((len(packed), period), dtype="<u8")
    for place, shift, first, last in _places(bits):
        word = np.zeros((len(packed), 8), dtype=np.uint8)
        word[:, : last - first] = packed[:, first:last]
        groups[:, place] = (word.view("<u8")[:, 0] >> np.uint64(shift)) & np.uint64((1 << bits) - 1)
    if np.any(groups >= np.uint64(modulus)):
        raise MalformedMessage("he: a coefficient is not below the modulus")
    return groups.reshape(-1)


def _period(bits: int) -> int:
    """Fewest coefficients that fill whole bytes: 1, 2, 4 or 8."""
    if not 1 <= bits <= _MOST_BITS:
        raise ValueError(f"bits: expected 1 to {_MOST_BITS}, got {bits}")
    return next(count for count in (1, 2, 4, 8) if count * bits % 8 == 0)


def _places(bits: int) -> Iterator[tuple[int, int, int, int]]:
    """For each coefficient of a group: its place, its shift within the first byte, first and end byte."""
    for place in range(_period(bits)):
        start = place * bits
        yield place, start % 8, start // 8, -(-(start + bits) // 8)
