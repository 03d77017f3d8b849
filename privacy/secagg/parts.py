"""How a vector is cut into parts: the one place that knows part sizes and their digests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privacy.errors import Unprocessable
from privacy.secagg.additive import RING_BYTES
from privacy.wire.messages import PART_BYTES

PART_ELEMENTS = PART_BYTES // RING_BYTES


@dataclass(frozen=True)
class Stretch:
    """Elements [start, start + length) of a vector: what part ``index`` carries."""

    index: int
    start: int
    length: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length * RING_BYTES


def part_count(vector_length: int) -> int:
    """Parts a vector of that many elements takes."""
    return -(-vector_length // PART_ELEMENTS)


def stretches(vector_length: int) -> Iterator[Stretch]:
    """Every part of a vector, in order."""
    for index in range(part_count(vector_length)):
        yield stretch(index, vector_length)


def stretch(index: int, vector_length: int) -> Stretch:
    """Part ``index`` of a vector.

    Raises:
        Unprocessable: there is no such part.
    """
    count = part_count(vector_length)
    if not 0 <= index < count:
        raise Unprocessable(f"part: expected 0 to {count - 1}, got {index}")
    start = index * PART_ELEMENTS
    return Stretch(index, start, min(PART_ELEMENTS, vector_length - start))
