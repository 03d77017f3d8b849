"""What a silo proves with after the first coin, as one vector of field elements in a fixed order.

v | B² − v | ŵ | S − ŵ | projections + T − 1     bits, lowest first
P without its known coefficient                  2n      (squares.py)
q                                                N + 1   (bits.py)
β                                                1
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from privacy.errors import Unprocessable
from privacy.secagg.validity.bits import read
from privacy.secagg.validity.field import MODULUS, Field
from privacy.secagg.validity.terms import ValidityTerms


def witness_length(terms: ValidityTerms) -> int:
    """Field elements in a witness."""
    return terms.bit_count + 2 * terms.columns + terms.domain + 2


@dataclass(frozen=True)
class Witness:
    """A witness, or a share of one."""

    bits: Field = field(repr=False)
    squares: Field = field(repr=False)
    quotient: Field = field(repr=False)
    beta: int = field(repr=False)

    def elements(self) -> Field:
        """All of it as one vector."""
        return np.concatenate(
            [self.bits, self.squares, self.quotient, np.array([self.beta], dtype=np.uint64)]
        )


def cut_witness(elements: Field, terms: ValidityTerms) -> Witness:
    """The inverse of ``Witness.elements``.

    Raises:
        Unprocessable: another length.
    """
    if len(elements) != witness_length(terms):
        raise Unprocessable(f"witness: expected {witness_length(terms)} elements, got {len(elements)}")
    bits, squares, quotient, beta = np.split(
        elements, np.cumsum([terms.bit_count, 2 * terms.columns, terms.domain + 1])
    )
    return Witness(bits, squares, quotient, int(beta[0]))


@dataclass(frozen=True)
class Numbers:
    """What the bits of a witness (or of a share) spell, each mod p."""

    squared_norm: int = field(repr=False)
    squared_norm_left: int = field(repr=False)
    weight: int = field(repr=False)
    weight_left: int = field(repr=False)
    projections: Field = field(repr=False)


def numbers_of(bits: Field, terms: ValidityTerms) -> Numbers:
    """Read the bits in the order above."""
    norm, weight, ranges = np.split(bits, np.cumsum([2 * terms.norm_bits, 2 * terms.weight_bits]))
    v, v_left = (int(number) % MODULUS for number in read(norm, terms.norm_bits))
    w, w_left = (int(number) % MODULUS for number in read(weight, terms.weight_bits))
    return Numbers(v, v_left, w, w_left, read(ranges, terms.range_bits))
