"""Polynomials over a domain of roots of unity: transform, inverse, and evaluation outside the domain."""

from __future__ import annotations

import numpy as np

from privacy.secagg.validity.field import (
    MODULUS,
    Field,
    add,
    inverse,
    multiply,
    powers,
    root_of_unity,
    subtract,
)


def evaluate_on_domain(coefficients: Field) -> Field:
    """Values at 1, ω, ω², … of the polynomial with these coefficients (a power of two of them)."""
    return _transform(coefficients, root_of_unity(len(coefficients)))


def interpolate_on_domain(values: Field) -> Field:
    """Coefficients of the polynomial that takes these values at 1, ω, ω², …"""
    size = len(values)
    back = pow(root_of_unity(size), -1, MODULUS)
    return multiply(_transform(values, back), np.uint64(pow(size, -1, MODULUS)))


def lagrange_weights(size: int, point: int) -> Field:
    """L_k(point) for each k < size, so that Σ L_k·values[k] is the interpolant at ``point``.

    Barycentric form on roots of unity: L_k(ρ) = (ρ^N − 1)/N · ω^k/(ρ − ω^k). ``point`` is outside the domain.
    """
    domain = powers(root_of_unity(size), size)
    scale = (pow(point, size, MODULUS) - 1) * pow(size, -1, MODULUS) % MODULUS
    below = inverse(subtract(np.full(size, point, dtype=np.uint64), domain))
    return multiply(multiply(domain, below), np.uint64(scale))


def _transform(values: Field, root: int) -> Field:
    """Number-theoretic transform (Cooley–Tukey, decimation in time), one array step a level.

    Row k of ``table`` holds value k of the transforms of the subsequences j, j + M, j + 2M, …, one a column.
    """
    size = len(values)
    table = values.reshape(1, size)
    while table.shape[1] > 1:
        length, half = table.shape[0], table.shape[1] // 2
        twiddle = powers(pow(root, half, MODULUS), length).reshape(length, 1)
        even, odd = table[:, :half], multiply(table[:, half:], twiddle)
        table = np.concatenate([add(even, odd), subtract(even, odd)], axis=0)
    return table.reshape(size)
