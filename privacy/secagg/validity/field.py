"""Arithmetic mod p = 2^64 − 2^32 + 1, vectorised: every array is uint64 with elements in [0, p).

2^64 ≡ 2^32 − 1 and 2^96 ≡ −1 (mod p), so a 128-bit product reduces with shifts and additions. p − 1 is
divisible by 2^32, which gives roots of unity for every power-of-two domain up to 2^32. Big sums take
another way: 16-bit limbs through float64 matrix products, which are exact below 2^53.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import MalformedMessage

Field = NDArray[np.uint64]

MODULUS = 2**64 - 2**32 + 1
FIELD_BYTES = 8
_GENERATOR = 7
_TWO_ADICITY = 32
_P = np.uint64(MODULUS)
_EPSILON = np.uint64(2**32 - 1)
"""2^64 mod p, and the mask of the lower half."""
_HALF = np.uint64(32)
_LIMBS = 4
_LIMB_BITS = 16
_CHUNK_DOUBLES = 1 << 15
"""Keeps a limb product below 2^18 multiplications, under which OpenBLAS does not start threads: for skinny
products they spin longer than they work (20 × slower on a busy machine)."""


def add(a: Field, b: Field) -> Field:
    """a + b."""
    total = a + b
    total += np.where(total < a, _EPSILON, np.uint64(0))  # the carry is worth 2^64
    return np.where(total >= _P, total - _P, total)


def subtract(a: Field, b: Field | np.uint64) -> Field:
    """a − b."""
    difference: Field = a - b
    difference -= np.where(a < b, _EPSILON, np.uint64(0))  # the borrow took 2^64 too much
    return difference


def multiply(a: Field, b: Field | np.uint64) -> Field:
    """a · b by four 32 × 32-bit products and one reduction."""
    a0, a1 = a & _EPSILON, a >> _HALF
    b0, b1 = b & _EPSILON, b >> _HALF
    low = a0 * b0
    middle = a0 * b1 + (low >> _HALF)  # at most (2^32 − 1)² + 2^32 − 1: no carry is lost
    other = a1 * b0 + (middle & _EPSILON)
    high = a1 * b1 + (middle >> _HALF) + (other >> _HALF)
    low = (other << _HALF) | (low & _EPSILON)
    # low + 2^64·h0 + 2^96·h1 ≡ low − h1 + (2^32 − 1)·h0
    h0, h1 = high & _EPSILON, high >> _HALF
    difference = low - h1
    difference -= np.where(low < h1, _EPSILON, np.uint64(0))
    product = (h0 << _HALF) - h0
    total: Field = difference + product
    total += np.where(total < product, _EPSILON, np.uint64(0))
    total -= np.where(total >= _P, _P, np.uint64(0))
    return total


def total(a: Field, axis: int = -1) -> Field:
    """Sum along one axis, of fewer than 2^31 elements, of an array with two axes or more."""
    low = np.sum(a & _EPSILON, axis=axis, dtype=np.uint64)
    high = np.sum(a >> _HALF, axis=axis, dtype=np.uint64)
    return add(np.mod(low, _P), multiply(np.mod(high, _P), np.uint64(2**32)))


def dot(a: Field, b: Field) -> int:
    """Σ a·b of two vectors of fewer than 2^31 elements."""
    products = multiply(a, b)
    low, high = np.sum(products & _EPSILON, dtype=np.uint64), np.sum(products >> _HALF, dtype=np.uint64)
    return (int(low) + (int(high) << 32)) % MODULUS


def powers(base: int, count: int) -> Field:
    """base^0, …, base^(count − 1)."""
    out = np.ones(count, dtype=np.uint64)
    known = 1
    while known < count:
        step = min(known, count - known)
        out[known : known + step] = multiply(out[:step], np.uint64(pow(base, known, MODULUS)))
        known += step
    return out


def inverse(a: Field) -> Field:
    """1/a = a^(p − 2) (Fermat); the caller has excluded zero."""
    result = np.ones_like(a)
    for bit in bin(MODULUS - 2)[2:]:
        result = multiply(result, result)
        if bit == "1":
            result = multiply(result, a)
    return result


def root_of_unity(order: int) -> int:
    """A primitive root of unity of that order, a power of two up to 2^32."""
    if order & (order - 1) or not 1 <= order <= 1 << _TWO_ADICITY:
        raise ValueError(f"order: expected a power of two up to 2^{_TWO_ADICITY}, got {order}")
    return pow(_GENERATOR, (MODULUS - 1) // order, MODULUS)


def from_signed(values: NDArray[np.int64]) -> Field:
    """Signed integers as field elements."""
    return np.where(values < 0, values.view(np.uint64) - _EPSILON, values.view(np.uint64))


def centred(a: Field) -> NDArray[np.int64]:
    """Field elements as the nearest signed integers, in (−p/2, p/2)."""
    return np.where(a > np.uint64(MODULUS // 2), a + _EPSILON, a).view(np.int64)


def to_bytes(a: Field) -> bytes:
    """Little-endian, 8 bytes an element."""
    return a.astype("<u8", copy=False).tobytes()


def from_bytes(raw: bytes, length: int) -> Field:
    """Read ``length`` elements.

    Raises:
        MalformedMessage: another length, or an element that is not below p.
    """
    if len(raw) != FIELD_BYTES * length:
        raise MalformedMessage(f"field elements: expected {FIELD_BYTES * length} bytes, got {len(raw)}")
    elements = np.frombuffer(raw, dtype="<u8")
    if np.any(elements >= _P):
        raise MalformedMessage("field elements: expected each below 2^64 − 2^32 + 1")
    return elements


def rows_times(matrix: Field, weights: Field) -> Field:
    """matrix (m, n) · weights (n, c) by float64 products of 16-bit limbs.

    Each product is below 2^32 and 4·n of them are added, so all is exact for n ≤ 2^19.
    """
    rows, columns = matrix.shape
    if columns > 1 << 19:
        raise ValueError(f"matrix: expected at most 2^19 columns, got {columns}")
    # Limb i of an element weighs 2^(16·i): fold that into the weights, so that one product does it all.
    folded = np.stack(
        [multiply(weights, np.uint64(2 ** (_LIMB_BITS * i))) for i in range(_LIMBS)], axis=1
    ).reshape(columns * _LIMBS, weights.shape[1])
    table = limbs(folded).reshape(columns * _LIMBS, weights.shape[1] * _LIMBS)
    sums = np.empty((rows, weights.shape[1] * _LIMBS))
    step = max(1, _CHUNK_DOUBLES // (columns * _LIMBS))
    for start in range(0, rows, step):
        block = limbs(matrix[start : start + step])
        sums[start : start + step] = block.reshape(len(block), columns * _LIMBS) @ table
    return from_limb_sums(sums.reshape(rows, weights.shape[1], _LIMBS))


def limbs(a: Field) -> NDArray[np.float64]:
    """Four 16-bit limbs of each element, lowest first, in a new last axis."""
    little = np.ascontiguousarray(a, dtype="<u8")
    return little.view("<u2").reshape(*a.shape, _LIMBS).astype(np.float64)


def from_limb_sums(sums: NDArray[np.float64]) -> Field:
    """Σ_i sums[…, i]·2^(16·i), for integers of either sign below 2^53 in magnitude."""
    out = np.zeros(sums.shape[:-1], dtype=np.uint64)
    for i in range(_LIMBS):
        limb = from_signed(np.ascontiguousarray(sums[..., i]).astype(np.int64))
        out = add(out, multiply(limb, np.uint64(2 ** (_LIMB_BITS * i))))
    return out
