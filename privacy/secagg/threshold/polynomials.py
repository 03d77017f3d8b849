"""Polynomials as they travel and as they are added: residues modulo each prime of a row, in evaluation form.

uint64[count, towers, degree] ↔ bytes: tower after tower, each coefficient in as many little-endian bytes
as its prime has. A peer chooses coefficients and nothing else; one that is not below its prime is refused,
and adding needs no OpenFHE. Also the polynomial a that all key shares are over: expanded from the context
by SHAKE-256, so that nobody chose it (an a with a trapdoor would give every secret share away).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from privacy.errors import MalformedMessage, Unprocessable
from privacy.ids import Context
from privacy.secagg.threshold.parameters import ThresholdParameters

Polynomials = NDArray[np.uint64]


def to_wire(parameters: ThresholdParameters, polynomials: Polynomials) -> bytes:
    """uint64[count, towers, degree] → count · ``polynomial_bytes`` bytes."""
    little = np.ascontiguousarray(polynomials, dtype="<u8")
    octets = little.view(np.uint8).reshape(*little.shape, 8)
    towers = [
        octets[:, tower, :, :width].reshape(len(little), -1) for tower, width in enumerate(parameters.widths)
    ]
    return np.concatenate(towers, axis=1).tobytes()


def from_wire(name: str, parameters: ThresholdParameters, raw: bytes, count: int) -> Polynomials:
    """The inverse of ``to_wire``.

    Raises: MalformedMessage: not exactly as long as ``count`` polynomials, or a coefficient is not below
        its prime.
    """
    expected = count * parameters.polynomial_bytes
    if len(raw) != expected:
        raise MalformedMessage(f"{name}: expected {expected} bytes under {parameters.name}, got {len(raw)}")
    octets = np.frombuffer(raw, dtype=np.uint8).reshape(count, -1)
    read = np.zeros((count, len(parameters.moduli), parameters.degree, 8), dtype=np.uint8)
    start = 0
    for tower, width in enumerate(parameters.widths):
        end = start + parameters.degree * width
        read[:, tower, :, :width] = octets[:, start:end].reshape(count, parameters.degree, width)
        start = end
    polynomials = read.view("<u8")[..., 0]
    if np.any(polynomials >= _primes(parameters)):
        raise MalformedMessage(f"{name}: a coefficient is not below its prime: no polynomial of this ring")
    return polynomials


def add(parameters: ThresholdParameters, total: Polynomials, summand: Polynomials) -> None:
    """total += summand, in place, coefficient by coefficient modulo each prime (below 2^63: no overflow)."""
    primes = _primes(parameters)
    np.add(total, summand, out=total)
    np.subtract(total, primes, out=total, where=total >= primes)


def added(parameters: ThresholdParameters, summands: Iterable[Polynomials]) -> Polynomials:
    """Σ of at least one.

    Raises:
        Unprocessable: there is none.
    """
    total: Polynomials | None = None
    for summand in summands:
        if total is None:
            total = summand.copy()
        else:
            add(parameters, total, summand)
    if total is None:
        raise Unprocessable("sum: expected at least one summand")
    return total


def common_polynomial(parameters: ThresholdParameters, context: Context) -> Polynomials:
    """a, uint64[1, towers, degree]: uniform below each prime by rejection, from SHAKE-256(label, row, ctx,
    tower)."""
    towers = [_uniform(parameters, context, tower) for tower in range(len(parameters.moduli))]
    return np.stack(towers)[None]


def _uniform(parameters: ThresholdParameters, context: Context, tower: int) -> Polynomials:
    prime = parameters.moduli[tower]
    label = b"sealsum/threshold/common/v1\x00" + parameters.name.encode() + b"\x00"
    stream = hashlib.shake_256(label + bytes.fromhex(context) + tower.to_bytes(4, "big"))
    mask = np.uint64((1 << prime.bit_length()) - 1)
    words = 2 * parameters.degree  # at worst every second word is rejected, and the primes are far better
    drawn = np.frombuffer(stream.digest(8 * words), dtype="<u8") & mask
    kept = drawn[drawn < np.uint64(prime)]
    if len(kept) < parameters.degree:
        raise ValueError(f"{parameters.name}: its primes must lie just below a power of two")
    return kept[: parameters.degree].astype(np.uint64)


def _primes(parameters: ThresholdParameters) -> NDArray[np.uint64]:
    return np.array(parameters.moduli, dtype=np.uint64)[:, None]
