"""Σx² = v on shares: one polynomial identity at one random point (fully linear proof).

A row of n coordinates, with one random blind each, gives two polynomials of degree n:
    f(X) = Σ_k x_k X^k       + u X^n
    g(X) = Σ_k x_k X^(n−1−k) + w X^n
In P = Σ_rows f·g, of degree 2n, the coefficient of X^(n−1) is exactly Σx²: blinds enter at X^n and above.
The silo commits to the other 2n coefficients before r is known; servers then open f(r) and g(r) of each
row and compare Σ f(r)·g(r) with P(r) (Boneh et al. 2019, ia.cr/2019/188 §4.2, with coefficients in place of
evaluations). A false v survives with probability 2n/p (Schwartz–Zippel). What is opened is uniform: u and
w are shared among the servers, and r ≠ 0.

Why coefficients: the silo's part is one Gram matrix XᵀX, whose diagonals are the coefficients, in plain
float64. It is exact: each partial sum is an integer of at most ‖x‖² ≤ B² ≤ 2^50 (Cauchy–Schwarz).
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.validity.field import (
    MODULUS,
    Field,
    add,
    dot,
    from_limb_sums,
    from_signed,
    limbs,
    multiply,
    powers,
    rows_times,
)
from privacy.secagg.validity.terms import ValidityTerms

E = TypeVar("E", np.uint64, np.int64)

_CHUNK = 1 << 17


class SquaresProver:
    """The silo's part: it streams the vector once and ends with P without its known coefficient."""

    def __init__(self, terms: ValidityTerms) -> None:
        self._columns = terms.columns
        self._bound = terms.encoded_bound
        self._gram = np.zeros((terms.columns, terms.columns))
        self._cross = np.zeros(terms.columns, dtype=np.uint64)
        self._cross_reversed = np.zeros(terms.columns, dtype=np.uint64)
        self._top = 0

    def absorb(self, coordinates: NDArray[np.int64], u: Field, w: Field) -> None:
        """Add whole rows (the last may be short) with a blind u and w for each.

        Raises:
            UpdateOutOfRange: a coordinate alone is beyond B; then the sums below would not be exact.
        """
        if np.any((coordinates > self._bound) | (coordinates < -self._bound)):
            raise UpdateOutOfRange("update: its norm is beyond norm_bound; clip before noise is accounted")
        n = self._columns
        step = max(1, _CHUNK // n)
        for row in range(0, len(u), step):
            block = padded(coordinates[row * n : (row + step) * n], n).astype(np.float64)
            self._gram += block.T @ block
            # Σ_rows u·x_k by 16-bit limbs of u: below 2^16·Σ|x| ≤ 2^16·√rows·B < 2^53.
            self._cross = add(self._cross, _limb_product(u[row : row + step], block))
            self._cross_reversed = add(self._cross_reversed, _limb_product(w[row : row + step], block))
        self._top = (self._top + dot(u, w)) % MODULUS

    def squared_norm(self) -> float:
        """Σx²: exact up to 2^53, and never below 2^53 when the true value is beyond."""
        return float(math.fsum(np.diag(self._gram)))

    def proof(self) -> Field:
        """Coefficients of X^0 … X^(2n) of P but that of X^(n−1): uint64[2n]."""
        n = self._columns
        lags = from_signed(
            np.array([round(float(np.trace(self._gram, offset=lag))) for lag in range(n)], dtype=np.int64)
        )
        coefficients = np.zeros(2 * n + 1, dtype=np.uint64)
        coefficients[: n - 1] = lags[:0:-1]
        coefficients[n : 2 * n - 1] = lags[1:]
        # u X^n · x_k X^(n−1−k) falls on X^(2n−1−k); w X^n · x_k X^k on X^(n+k).
        coefficients[n : 2 * n] = add(coefficients[n : 2 * n], self._cross[::-1])
        coefficients[n : 2 * n] = add(coefficients[n : 2 * n], self._cross_reversed)
        coefficients[2 * n] = self._top
        return np.delete(coefficients, n - 1)


class SquaresQuery:
    """A server's part: shares of f(r) and g(r) of every row, and of P(r)."""

    def __init__(self, terms: ValidityTerms, point: int) -> None:
        n = terms.columns
        self._columns = n
        self._powers = powers(point, 2 * n + 1)
        self._weights = np.stack([self._powers[:n], self._powers[n - 1 :: -1][:n]], axis=1)

    def rows(self, coordinates: Field, u: Field, w: Field) -> Field:
        """Shares of f(r), g(r) of these rows: uint64[rows, 2]."""
        out = rows_times(padded(coordinates, self._columns), self._weights)
        blinds = np.stack([u, w], axis=1)
        top = int(self._powers[self._columns])
        return add(out, multiply(blinds, np.uint64(top)))

    def claimed(self, proof: Field, squared_norm: int) -> int:
        """A share of P(r), with the share of v in the place of the missing coefficient."""
        n = self._columns
        value = dot(proof, np.delete(self._powers, n - 1))
        return (value + squared_norm * int(self._powers[n - 1])) % MODULUS


def padded(coordinates: NDArray[E], columns: int) -> NDArray[E]:
    """Rows of ``columns``, the last filled with zeros (a share of zero is zero)."""
    missing = -len(coordinates) % columns
    if missing:
        coordinates = np.concatenate([coordinates, np.zeros(missing, dtype=coordinates.dtype)])
    return coordinates.reshape(-1, columns)


def _limb_product(blinds: Field, block: NDArray[np.float64]) -> Field:
    return from_limb_sums((limbs(blinds).T @ block).T)
