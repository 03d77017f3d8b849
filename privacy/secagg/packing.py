"""Several coordinates in one ring element: fewer bytes for coarse grids, by schemes that add exactly in
Z_2^32.

A coordinate's steps q in [−L, L] travel as q + L in a field of ⌊32 / per_element⌋ bits, so that the sum of
n silos is below 2^bits in every field and nothing carries into the next one. The first coordinate has the
lowest bits. A sum is read by taking n · L off each field. Knows no keys and no plan.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.plan import VectorTerms

RING_BITS = 32


def field_bits(terms: VectorTerms) -> int:
    """Bits of one coordinate's field."""
    return RING_BITS // terms.per_element


def largest_step(terms: VectorTerms) -> int:
    """L: stochastic rounding may go up to the next step from the bound."""
    return math.ceil(terms.coordinate_bound * 2.0**terms.scale_bits)


def assert_fields_hold(terms: VectorTerms, contributors: int) -> None:
    """Refuse fields that the sum of so many silos could leave.

    Raises:
        Unprocessable: n · 2L does not stay below 2^bits.
    """
    if contributors * 2 * largest_step(terms) >= 1 << field_bits(terms):
        raise Unprocessable(
            f"vector.per_element: {contributors} silos × 2 × {largest_step(terms)} steps reaches "
            f"2^{field_bits(terms)}, a field's end; lower per_element, scale_bits or coordinate_bound"
        )


def pack(steps: NDArray[np.uint32], terms: VectorTerms) -> NDArray[np.uint32]:
    """Elements of a stretch of coordinates that begins a field: uint32[m] of the ring to uint32[⌈m /
    per_element⌉].

    The last element is filled up with zero steps.
    """
    count = -(-len(steps) // terms.per_element) * terms.per_element
    fields = np.full(count, largest_step(terms), dtype=np.uint32)
    fields[: len(steps)] += steps  # modulo 2^32: a negative step takes from L
    packed = np.zeros(count // terms.per_element, dtype=np.uint32)
    for place in range(terms.per_element):
        packed |= fields[place :: terms.per_element] << np.uint32(place * field_bits(terms))
    return packed


def unpack(total: NDArray[np.uint32], terms: VectorTerms, contributors: int) -> NDArray[np.uint32]:
    """The sum of so many silos' elements, uint32[m], as the sums of their steps: uint32[m · per_element]."""
    if terms.per_element == 1:
        return total
    mask = np.uint32((1 << field_bits(terms)) - 1)
    steps = np.empty(len(total) * terms.per_element, dtype=np.uint32)
    for place in range(terms.per_element):
        steps[place :: terms.per_element] = (total >> np.uint32(place * field_bits(terms))) & mask
    steps -= np.uint32(contributors * largest_step(terms))
    return steps
