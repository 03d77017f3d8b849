"""How vectors of field elements are cut into parts, and how large a witness and a check are in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privacy.errors import Unprocessable
from privacy.secagg.parts import Stretch
from privacy.secagg.validity.field import FIELD_BYTES
from privacy.secagg.validity.sharing import PART_ELEMENTS
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import witness_length


@dataclass(frozen=True)
class FieldStretch:
    """Elements [start, start + length) of a shared vector: what part ``index`` carries."""

    index: int
    start: int
    length: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length * FIELD_BYTES


def field_part_count(vector_length: int) -> int:
    """Parts that a shared vector of that many elements takes."""
    return -(-vector_length // PART_ELEMENTS)


def field_stretches(vector_length: int) -> Iterator[FieldStretch]:
    """Every part of a shared vector, in order."""
    for index in range(field_part_count(vector_length)):
        yield field_stretch(index, vector_length)


def field_stretch(index: int, vector_length: int) -> FieldStretch:
    """Part ``index`` of a shared vector.

    Raises:
        Unprocessable: there is no such part.
    """
    count = field_part_count(vector_length)
    if not 0 <= index < count:
        raise Unprocessable(f"part: expected 0 to {count - 1}, got {index}")
    start = index * PART_ELEMENTS
    return FieldStretch(index, start, min(PART_ELEMENTS, vector_length - start))


def within(piece: Stretch, vector_length: int) -> Iterator[FieldStretch]:
    """The field parts that make up one stretch of ring elements: a whole number of them."""
    for start in range(piece.start, piece.start + piece.length, PART_ELEMENTS):
        yield field_stretch(start // PART_ELEMENTS, vector_length)


def witness_bytes(terms: ValidityTerms) -> int:
    """Bytes of the first server's share of a witness."""
    return FIELD_BYTES * witness_length(terms)


def upload_bytes(terms: ValidityTerms) -> int:
    """What a silo sends of one vector in one round: its share and its witness."""
    return FIELD_BYTES * terms.vector_length + witness_bytes(terms)
