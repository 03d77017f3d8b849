"""A Gaussian mechanism whose noise comes in shares and whose output is integers, for sums in a ring.

Each of h honest silos adds round(s·Σ clip(g)) + round(s·N(0, σ²C²/h)) to the sum, s steps of the grid a unit
of gradient. Why the opened sum is as private as N(0, σ²C²) on a sum of sensitivity C (docs/privacy.md has the
proof in full):

1. Rounding the clipped sum moves each coordinate by at most one step between neighbours, so its norm by √d
   steps; clipping to C − √d/s keeps the integers' sensitivity within s·C.
2. A rounded Gaussian with a deviation of Σ steps is a Gaussian plus a uniform on ±½ seen at the integers; up
   to aliasing of exp(−π²Σ²), h of them add up to the rounding of N(0, h·Σ²) plus independent noise. A shift
   by integers commutes with rounding, so the sum is post-processing of the Gaussian mechanism.
3. Before the noise, each coordinate of the signal is clamped to what leaves room for any draw: a projection
   onto a box, which moves no two neighbours further apart. So whether an update fits its bound tells nothing
   of the data: with room for a signal at all, it always does.

Pure numbers: draws nothing, knows no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privacy.plan import DpTerms, TrainingTerms, VectorTerms

LEAST_DEVIATION = 4.0
"""Steps of the grid that a share's deviation must have: aliasing is below e^−157 then."""
MOST_DEVIATION = 2.0**20
"""Steps beyond which the last bits of a float64 draw would start to count (docs/privacy.md)."""
MOST_MARGIN = 0.1
"""Largest part of the clip norm that may go to rounding; a coarser grid is refused as a waste."""
LARGEST_BATCH = 4.0
"""Sum that must fit a coordinate, in normalisers: that many units, all clipped, all pulling one way in it."""
TAIL = 10.0
"""Standard deviations of a silo's noise that must fit besides: one draw in 10^23 lies beyond."""
LONGEST_DRAW = 14.0
"""Standard deviations beyond which no draw lies: 128 bits of probability in a tail end at 13.1."""
NORM_TAIL_BITS = 64
"""A silo's noise is longer than what is kept free for it in one round of 2 to this."""


@dataclass(frozen=True)
class IntegerMechanism:
    """One silo's part of a private step, in steps of the plan's grid."""

    steps_per_unit: float
    """s: what the clipped sum of gradients is multiplied by before it is rounded."""
    clip: float
    """C − √d/s: each unit's gradient is scaled down to this norm."""
    deviation: float
    """s·σ·C/√h: standard deviation of the silo's own noise, in steps."""
    margin: float
    """√d/s over C."""


def integer_mechanism(
    dp: DpTerms, training: TrainingTerms, vector: VectorTerms, coordinates: int
) -> IntegerMechanism:
    """The mechanism of one step of ``dp_fedsgd``, of d = ``coordinates``.

    A silo's update is −learning_rate / normaliser times the noisy clipped sum, as in a step of DP-SGD; both
    are public constants and become part of the scale. Whether the terms are sound is the plan gate's matter.
    """
    steps_per_unit = 2.0**vector.scale_bits * training.learning_rate / dp.normaliser
    rounding = math.sqrt(coordinates) / steps_per_unit
    return IntegerMechanism(
        steps_per_unit=steps_per_unit,
        clip=dp.clip_l2 - rounding,
        deviation=steps_per_unit * dp.own_noise_multiplier * dp.clip_l2,
        margin=rounding / dp.clip_l2,
    )


def clamped(
    signal: NDArray[np.float64], mechanism: IntegerMechanism, vector: VectorTerms
) -> NDArray[np.float64]:
    """The signal, projected onto the box that any noise leaves within ``coordinate_bound``: float64[d] of
    integers. An empty box is the point 0: then the noise alone decides whether the update fits.
    """
    room = math.floor(vector.coordinate_bound * 2.0**vector.scale_bits)
    limit = float(max(0, room - math.ceil(LONGEST_DRAW * mechanism.deviation) - 1))
    return np.clip(signal, -limit, limit)


def shortened(
    exact: NDArray[np.float64], mechanism: IntegerMechanism, vector: VectorTerms, norm_bound: float
) -> NDArray[np.float64]:
    """The signal before it is rounded, projected onto the ball that noise leaves within ``norm_bound``.

    Where silos prove their updates' norm, one that is too long is not sent; whether it is must not hang on
    the data. A projection onto a ball moves no two signals further apart, rounding adds √d as it does
    without, and noise is longer than Σ(√d + √(2 ln 2⁶⁴)) once in 2⁶⁴ rounds (Boucheron et al. 2013, Theorem
    5.6). What both roundings add, √d, is within what the proven bound leaves for it (``encoded_bound_of``).
    """
    noise = mechanism.deviation * (math.sqrt(len(exact)) + math.sqrt(2 * NORM_TAIL_BITS * math.log(2)))
    room = max(0.0, norm_bound * 2.0**vector.scale_bits - noise)
    norm = float(np.linalg.norm(exact))
    return exact if norm <= room else exact * (room / norm)


def least_coordinate_bound(dp: DpTerms, training: TrainingTerms, vector: VectorTerms) -> float:
    """The smallest ``coordinate_bound`` that clamps no honest silo's signal, if it is of an ordinary size.

    The bound holds ``LARGEST_BATCH`` times
    the normaliser of units that pull one way in a coordinate, ``TAIL`` deviations of noise, and half a step
    of rounding for each of the two.
    """
    units = LARGEST_BATCH * dp.normaliser + TAIL * dp.own_noise_multiplier
    return training.learning_rate * dp.clip_l2 * units / dp.normaliser + 2.0**-vector.scale_bits
