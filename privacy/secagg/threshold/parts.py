"""How ciphertexts travel: which part holds which elements, and exactly how many bytes each has.

A part is 32 ciphertexts, in two halves that are stored and named apart: bodies (c0) for the server alone,
masks (c1) for the server and for every silo, which adds them up itself before it helps to open. A partial
decryption is one polynomial a ciphertext, like a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privacy.errors import Unprocessable
from privacy.secagg.threshold.parameters import ThresholdParameters

CIPHERTEXTS_PER_PART = 32


@dataclass(frozen=True)
class ThresholdStretch:
    """Elements [start, start + length) of a vector, in ``ciphertexts`` ciphertexts: what a part carries."""

    index: int
    start: int
    length: int
    ciphertexts: int

    def half_bytes(self, parameters: ThresholdParameters) -> int:
        """Exact size of its bodies, its masks, or a partial decryption of it."""
        return self.ciphertexts * parameters.polynomial_bytes


def threshold_part_count(parameters: ThresholdParameters, vector_length: int) -> int:
    """Parts a vector of that many elements takes."""
    return -(-vector_length // (CIPHERTEXTS_PER_PART * parameters.payload))


def threshold_stretch(parameters: ThresholdParameters, index: int, vector_length: int) -> ThresholdStretch:
    """Part ``index`` of a vector.

    Raises:
        Unprocessable: there is no such part.
    """
    count = threshold_part_count(parameters, vector_length)
    if not 0 <= index < count:
        raise Unprocessable(f"part: expected 0 to {count - 1}, got {index}")
    whole = CIPHERTEXTS_PER_PART * parameters.payload
    length = min(whole, vector_length - index * whole)
    return ThresholdStretch(index, index * whole, length, -(-length // parameters.payload))


def threshold_stretches(parameters: ThresholdParameters, vector_length: int) -> Iterator[ThresholdStretch]:
    """Every part of a vector, in order."""
    for index in range(threshold_part_count(parameters, vector_length)):
        yield threshold_stretch(parameters, index, vector_length)
