"""Fixed-point encoding of a weighted update in the ring Z_2^32, part by part.

x ↦ ⌊x·S + u⌋ mod 2^32 with u uniform in [0, 1) (stochastic rounding: unbiased), and back by reading
the sum as a signed integer. No overflow as long as n · max(bound, 1) · S + n < 2^31, which
``assert_fits`` checks before a round opens. A value out of range, NaN or Inf is refused, never repaired.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError, Unprocessable
from privacy.plan import VectorTerms

_HALF_RING = 1 << 31
_DITHER_STEP = 2.0**-32
_BLOCK = 1 << 15
"""Coordinates encoded at a time, so that their float64 temporaries stay in the cache: twice as fast."""


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
    if not 0.0 < weight <= 1.0:
        raise UpdateOutOfRange("update: expected a weight in (0, 1]")
    encoded = np.empty(values.shape, dtype=np.uint32)
    for start in range(0, len(values), _BLOCK):
        here = slice(start, start + _BLOCK)
        encoded[here] = _encode_block(values[here], weight, terms, dither[here])
    return encoded


def encode_weight(weight: float, terms: VectorTerms) -> NDArray[np.uint32]:
    """Encode the last coordinate, ŵ itself, rounded to nearest (it is exact for ŵ = 1): uint32[1]."""
    if not 0.0 < weight <= 1.0:
        raise UpdateOutOfRange("update: expected a weight in (0, 1]")
    return np.array([round(weight * 2**terms.scale_bits)], dtype=np.uint32)


def decode(total: NDArray[np.uint32], terms: VectorTerms) -> NDArray[np.float64]:
    """Read an opened sum (uint32[m]) as float64[m] by centring the ring and dividing by the scale."""
    return total.view(np.int32).astype(np.float64) / 2.0**terms.scale_bits


def _encode_block(
    values: NDArray[np.float32], weight: float, terms: VectorTerms, dither: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    # float64 throughout: a float32 dither vanishes once |x·S| passes 2^23.
    weighted = values.astype(np.float64)
    weighted *= weight
    if not np.all(np.isfinite(weighted)):
        raise UpdateOutOfRange("update: expected finite values; training diverged")
    if np.any(np.abs(weighted) > terms.coordinate_bound):
        raise UpdateOutOfRange(
            f"update: a coordinate is beyond coordinate_bound {terms.coordinate_bound:g}; "
            "lower the learning rate or raise the job's bound"
        )
    weighted *= 2.0**terms.scale_bits
    weighted += dither * _DITHER_STEP
    return np.floor(weighted, out=weighted).astype(np.int64).astype(np.uint32)
