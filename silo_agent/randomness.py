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
    """Independent normal draws by the inverse distribution function (cut at ±8.2 σ): float64[count].

    Floating-point Gaussians leak through their low bits (Mironov 2012); here the sum they are added to
    leaves the silo only after stochastic rounding to a fixed-point grid, under a mask.
    """
    draws: NDArray[np.float64] = ndtri(uniforms(count))
    return draws * standard_deviation
