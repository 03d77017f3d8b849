"""Fixed-point encoding of a weighted update as signed integers mod p, and back from an opened sum.

Like ``secagg/encoding.py`` (stochastic rounding, refusal instead of repair), but into the field of the
validity proof: 8 bytes a parameter, and no overflow below 2^38 silos, since |x_i| ≤ B ≤ 2^25.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.validity.field import Field, centred
from privacy.secagg.validity.terms import ValidityTerms

_DITHER_STEP = 2.0**-32
_RING_EDGE = 2**31 - 1


def encode(
    values: NDArray[np.float32], weight: float, terms: ValidityTerms, dither: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """⌊ŵ·Δ·S + u⌋ for one stretch of the flat update.

    Args:
        values: float32[m]. weight: ŵ in (0, 1]. dither: uint32[m], uniform, from a cryptographic keystream.

    Returns:
        int64[m], each at most B in magnitude. The norm of the whole is checked by the silo half.

    Raises:
        UpdateOutOfRange: NaN, infinite, or a coordinate that alone is beyond the bound.
    """
    if not 0.0 < weight <= 1.0:
        raise UpdateOutOfRange("update: expected a weight in (0, 1]")
    scaled = values.astype(np.float64) * weight * 2.0**terms.scale_bits
    if not np.all(np.isfinite(scaled)):
        raise UpdateOutOfRange("update: expected finite values; training diverged")
    fixed = np.floor(scaled + dither.astype(np.float64) * _DITHER_STEP)
    if np.any(np.abs(fixed) > terms.encoded_bound):
        raise UpdateOutOfRange("update: its norm is beyond norm_bound; clip before noise is accounted")
    return fixed.astype(np.int64)


def encode_weight(weight: float, terms: ValidityTerms) -> NDArray[np.int64]:
    """The last element, ŵ·S rounded to nearest: int64[1]."""
    if not 0.0 < weight <= 1.0:
        raise UpdateOutOfRange("update: expected a weight in (0, 1]")
    return np.array([round(weight * terms.weight_scale)], dtype=np.int64)


def from_ring(encoded: NDArray[np.uint32]) -> NDArray[np.int64]:
    """An update encoded for the ring (``secagg/encoding.py``) as the signed integers it stands for."""
    return encoded.view(np.int32).astype(np.int64)


def to_ring(total: Field, terms: ValidityTerms, contributors: int) -> NDArray[np.uint32]:
    """A stretch of an opened sum as elements of Z_2^32: the same integers as long as they are in range.

    Raises:
        Unprocessable: an element that no sum of that many valid updates can have, or beyond the ring.
    """
    signed = centred(total)
    most = min(contributors * max(terms.encoded_bound, terms.weight_scale), _RING_EDGE)
    if np.any(np.abs(signed) > most):
        raise Unprocessable(f"sum: expected one of {contributors} valid updates, got an element out of range")
    return signed.astype(np.int32).view(np.uint32)


def decode(total: Field, terms: ValidityTerms, contributors: int) -> NDArray[np.float64]:
    """An opened stretch of the sum as float64.

    Raises:
        Unprocessable: an element that no sum of that many valid updates can have.
    """
    signed = centred(total)
    if np.any(np.abs(signed) > contributors * max(terms.encoded_bound, terms.weight_scale)):
        raise Unprocessable(f"sum: expected one of {contributors} valid updates, got an element out of range")
    return signed.astype(np.float64) / 2.0**terms.scale_bits
