"""The only source of sampling and noise: AES-256-CTR keystreams under keys of the operating system.

There is no seed to set, so ``torch.manual_seed`` (which lets a peer subtract the noise) moves nothing,
and forked processes differ: each draw takes a fresh key.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privacy.secagg.keystream import keystream

_LOW_BITS = 20
_STEP = 2.0**-52
_EXACT = np.uint64(1 << 53)
"""Whole numbers below it are float64s."""


def uniforms(count: int) -> NDArray[np.float64]:
    """Midpoints of 2^52 equal cells of (0, 1), so that neither 0 nor 1 occurs: float64[count]."""
    words = keystream(os.urandom(32), 0, 2 * count).astype(np.uint64)
    cells = (words[:count] << np.uint64(_LOW_BITS)) | (words[count:] >> np.uint64(32 - _LOW_BITS))
    # cells + ½ takes at most 53 bits: exact, hence below 1.
    return (cells.astype(np.float64) + 0.5) * _STEP


def poisson_sample(population: int, rate: float) -> NDArray[np.intp]:
    """Indices drawn independently with probability ``rate`` each, ascending."""
    return np.flatnonzero(uniforms(population) < rate)


def gaussian(count: int, standard_deviation: float) -> NDArray[np.float64]:
    """Independent normal draws by the inverse distribution function: float64[count].

    A draw has a sign bit and a probability p of (0, ½) with 53 significant bits however small it is: 63 bits,
    and 64 more where the first ten of them vanish. So no tail is cut before ±13 σ, and what a draw differs by
    from the normal number of its p is below 2⁻⁵⁰ · max(1, |z|) (docs/privacy.md says what that costs).

    Floating-point Gaussians leak through their low bits (Mironov 2012): whoever calls rounds the draws, or
    the sum they are added to, to a fixed-point grid before anything leaves the silo.
    """
    words = _words(count)
    cells = words >> np.uint64(1)
    draws = cells.astype(np.float64)
    # Below 2^53 the conversion was exact and there is room for more bits.
    deep = np.flatnonzero(cells < _EXACT)
    draws[deep] += (_words(len(deep)).astype(np.float64) + 0.5) * 2.0**-64
    draws *= 2.0**-64
    ndtri(draws, out=draws)
    signed = draws.view(np.uint64)
    signed ^= words << np.uint64(63)
    draws *= standard_deviation
    return draws


def _words(count: int) -> NDArray[np.uint64]:
    """Fresh words of 64 bits: uint64[count]."""
    return keystream(os.urandom(32), 0, 2 * count).view("<u8")
