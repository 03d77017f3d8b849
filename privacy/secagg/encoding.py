"""Fixed-point encoding of a weighted update in the ring Z_2^32, part by part.

x ↦ ⌊x·S + u⌋ mod 2^32 with u uniform in [0, 1) (stochastic rounding: unbiased), computed in float64 as
x·S + (u − ½) rounded to nearest; and back by reading the sum as a signed integer. No overflow as long as
n · max(bound, 1) · S + n < 2^31, which ``assert_fits`` checks before a round opens. A value out of range,
NaN or Inf is refused, never repaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError, Unprocessable
from privacy.plan import VectorTerms
from privacy.secagg.keystream import BLOCK_ELEMENTS, DitherStream

_HALF_RING = 1 << 31
_TO_INTEGER = 1.5 * 2.0**84
"""Added to x·2^32 with |x| < 2^51, it leaves x, rounded, in the low bits of the float64, whose last bit is
worth 2^32 there (IEEE 754 section 4.3.1: round to nearest, ties to even)."""


class UpdateOutOfRange(SealsumError):
    """This silo's update cannot be encoded under the plan's terms; it takes no part in the round."""


def assert_fits(terms: VectorTerms, contributors: int) -> None:
    """Refuse terms under which ``contributors`` honest updates could wrap around the ring.

    Raises:
        Unprocessable: the worst sum does not stay below 2^31.
    """
    worst = contributors * (max(terms.coordinate_bound, 1.0) * 2.0**terms.scale_bits + 1.0)
    if worst >= _HALF_RING:
        raise Unprocessable(
            f"vector: {contributors} silos × bound {terms.coordinate_bound:g} × 2^{terms.scale_bits} reaches "
            "2^31; lower scale_bits or coordinate_bound"
        )


def encode(
    values: NDArray[np.float32], weight: float, terms: VectorTerms, dither: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Encode ``weight · values``.

    Args:
        values: float32[m], one stretch of the flat update.
        weight: ŵ in (0, 1], applied here so that it never travels beside the vector.
        dither: uint32[m], uniform, from a cryptographic keystream.

    Returns:
        uint32[m].

    Raises:
        UpdateOutOfRange: a value is NaN, infinite, or beyond the coordinate bound.
    """
    words = (dither[start : start + BLOCK_ELEMENTS] for start in range(0, len(values), BLOCK_ELEMENTS))
    return _encode(values, weight, terms, words)


def encode_fresh(
    values: NDArray[np.float32], weight: float, terms: VectorTerms, dither: DitherStream
) -> NDArray[np.uint32]:
    """As ``encode``, with dither that nothing else is encoded with, drawn block by block."""
    return _encode(values, weight, terms, dither.blocks(len(values)))


def _encode(
    values: NDArray[np.float32], weight: float, terms: VectorTerms, dither: Iterable[NDArray[np.uint32]]
) -> NDArray[np.uint32]:
    if not 0.0 < weight <= 1.0:
        raise UpdateOutOfRange("update: expected a weight in (0, 1]")
    encoded = np.empty(values.shape, dtype=np.uint32)
    scaled = np.empty(min(BLOCK_ELEMENTS, len(values)), dtype=np.float64)
    factor = weight * 2.0 ** (terms.scale_bits + 32)  # exact, and so is its effect on value · weight
    for start, words in zip(range(0, len(values), BLOCK_ELEMENTS), dither, strict=True):
        here = slice(start, start + BLOCK_ELEMENTS)
        _assert_encodable(values[here], weight, terms)
        steps = scaled[: len(words)]
        np.multiply(values[here], factor, out=steps, dtype=np.float64)
        # float64 throughout: a float32 dither vanishes once |x·S| passes 2^23.
        steps += words.view(np.int32)
        steps += _TO_INTEGER
        # The low half alone: x mod 2^32.
        np.copyto(encoded[here], steps.view(np.uint64), casting="unsafe")
    return encoded


def encode_steps(steps: NDArray[np.float64], terms: VectorTerms) -> NDArray[np.uint32]:
    """Encode what is on the grid already: float64[m] of integers, as they are, uint32[m].

    Raises:
        UpdateOutOfRange: one is NaN, or beyond the coordinate bound.
    """
    most = terms.coordinate_bound * 2.0**terms.scale_bits
    # Written so that NaN fails.
    if not np.all(np.abs(steps) <= most):
        raise UpdateOutOfRange(
            f"update: a coordinate is not finite or beyond coordinate_bound {terms.coordinate_bound:g}; "
            "lower the learning rate or raise the job's bound"
        )
    return steps.astype(np.int64).astype(np.uint32)


def encode_weight(weight: float, terms: VectorTerms) -> NDArray[np.uint32]:
    """Encode the last coordinate, ŵ itself, rounded to nearest (it is exact for ŵ = 1): uint32[1]."""
    if not 0.0 < weight <= 1.0:
        raise UpdateOutOfRange("update: expected a weight in (0, 1]")
    return np.array([round(weight * 2**terms.scale_bits)], dtype=np.uint32)


def decode(total: NDArray[np.uint32], terms: VectorTerms) -> NDArray[np.float64]:
    """Read an opened sum (uint32[m]) as float64[m] by centring the ring and dividing by the scale."""
    return total.view(np.int32).astype(np.float64) / 2.0**terms.scale_bits


def _assert_encodable(values: NDArray[np.float32], weight: float, terms: VectorTerms) -> None:
    """Judge a block by its extremes: rounding is monotonic, so no weighted value lies beyond theirs."""
    lowest, highest = float(values.min()), float(values.max())  # NaN, if there is one
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise UpdateOutOfRange("update: expected finite values; training diverged")
    if max(-lowest, highest) * weight > terms.coordinate_bound:
        raise UpdateOutOfRange(
            f"update: a coordinate is beyond coordinate_bound {terms.coordinate_bound:g}; "
            "lower the learning rate or raise the job's bound"
        )
