"""Bits on shares: many values proven to be 0 or 1 at once, and the numbers they spell.

The bits are values of f on N roots of unity (the rest zero), plus β·(X^N − 1) with β random, so that f at a
point off the domain is uniform. All are bits iff f·(f − 1) vanishes on the domain, that is, iff
f·(f − 1) = (X^N − 1)·q. The silo commits to the N + 1 coefficients of q; the servers open f(ρ) and
compare f(ρ)(f(ρ) − 1) with (ρ^N − 1)·q(ρ). A value that is not a bit survives with probability 2N/p
(Schwartz–Zippel). This is the fully linear proof of Boneh et al. 2019 (ia.cr/2019/188 §4.2) for the gadget
y(y − 1), with the zeros divided out, so that no random combination has to be known before the proof.
"""

from __future__ import annotations

import numpy as np

from privacy.secagg.validity.field import (
    MODULUS,
    Field,
    add,
    dot,
    from_signed,
    multiply,
    powers,
    subtract,
    total,
)
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.transform import evaluate_on_domain, interpolate_on_domain, lagrange_weights

_COSET = 7
"""A field element outside every power-of-two domain (it generates the field)."""
_ONE = np.uint64(1)


def prove_bits(bits: Field, beta: int, size: int) -> Field:
    """Coefficients of q: uint64[size + 1]. ``bits`` has at most ``size`` values."""
    placed = np.zeros(size, dtype=np.uint64)
    placed[: len(bits)] = bits
    plain = interpolate_on_domain(placed)
    # f₀(f₀ − 1)/(X^N − 1) has degree N − 2; on the coset 7·domain the divisor is the constant 7^N − 1.
    on_coset = evaluate_on_domain(multiply(plain, powers(_COSET, size)))
    divisor = pow(pow(_COSET, size, MODULUS) - 1, -1, MODULUS)
    quotient = multiply(multiply(on_coset, subtract(on_coset, _ONE)), np.uint64(divisor))
    base = multiply(interpolate_on_domain(quotient), powers(pow(_COSET, -1, MODULUS), size))
    # f = f₀ + βZ gives q = q₀ + 2β f₀ − β + β² Z.
    q = np.zeros(size + 1, dtype=np.uint64)
    q[:size] = add(base, multiply(plain, np.uint64(2 * beta % MODULUS)))
    q[0] = (int(q[0]) - beta - beta * beta) % MODULUS
    q[size] = beta * beta % MODULUS
    return q


class BitsQuery:
    """A server's part: shares of f(ρ) and of (ρ^N − 1)·q(ρ)."""

    def __init__(self, terms: ValidityTerms, point: int) -> None:
        self._lagrange = lagrange_weights(terms.domain, point)[: terms.bit_count]
        self._powers = powers(point, terms.domain + 1)
        self._vanishing = (int(self._powers[terms.domain]) - 1) % MODULUS

    def evaluate(self, bits: Field, beta: int, q: Field) -> tuple[int, int]:
        """(f(ρ), (ρ^N − 1)·q(ρ)) from shares."""
        value = (dot(bits, self._lagrange) + beta * self._vanishing) % MODULUS
        return value, dot(q, self._powers) * self._vanishing % MODULUS


def is_off_domain(point: int, size: int) -> bool:
    """Whether a point may be opened at: on the domain it would show a bit."""
    return point != 0 and pow(point, size, MODULUS) != 1


def spell(numbers: list[int], width: int) -> Field:
    """Bits of each number, lowest first, one number after another; all fit in ``width`` bits."""
    rows = [[number >> place & 1 for place in range(width)] for number in numbers]
    return from_signed(np.array(rows, dtype=np.int64)).reshape(-1)


def read(bits: Field, width: int) -> Field:
    """The numbers that shares of bits spell: a share of each."""
    places = powers(2, width)
    return total(multiply(bits.reshape(-1, width), places))
