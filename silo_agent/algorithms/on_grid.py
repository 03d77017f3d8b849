"""An update rounded where it is made, so that what a silo remembers of it is what the sum has of it.

Sealing rounds at random too; of a number that is on the grid already it changes nothing. Without this, what
silos remember would drift from what was opened by the rounding of every round, and on coarse grids that
adds up.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privacy.plan import VectorTerms
from silo_agent.randomness import uniforms


def on_grid(update: NDArray[np.float32], vector: VectorTerms) -> NDArray[np.float32]:
    """float32[d], each coordinate one of its two neighbours in steps of 2^−scale_bits, unbiased.

    A coordinate within the bound stays within it; one beyond is left for sealing to refuse.
    """
    scale = 2.0**vector.scale_bits
    steps = update.astype(np.float64) * scale
    below = np.floor(steps)
    rounded = below + (uniforms(len(steps)) < steps - below)
    most = math.floor(vector.coordinate_bound * scale)
    within = np.abs(update) <= vector.coordinate_bound
    rounded[within] = rounded[within].clip(-most, most)
    return (rounded / scale).astype(np.float32)
