"""How a vector is cut into parts: the one place that knows part sizes and their digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from privacy.errors import Unprocessable
from privacy.secagg.additive import RING_BYTES, Ring
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


def recut(chunks: Iterable[Ring], vector_length: int) -> Iterator[tuple[Stretch, Ring]]:
    """Ring elements that come in chunks of any length, cut into parts; one part in memory at a time."""
    gathered = np.empty(0, dtype=np.uint32)
    pieces = stretches(vector_length)
    piece = next(pieces, None)
    for chunk in chunks:
        gathered = np.concatenate([gathered, chunk])
        while piece is not None and len(gathered) >= piece.length:
            yield piece, gathered[: piece.length]
            gathered = gathered[piece.length :]
            piece = next(pieces, None)
