"""A Gaussian mechanism whose noise comes in shares and whose output is integers, for sums in a ring.

Each of h honest silos adds round(s·Σ clip(g)) + round(s·N(0, σ²C²/h)) to the sum, s steps of the grid a unit
of gradient. Why the opened sum is as private as N(0, σ²C²) on a sum of sensitivity C (docs/privacy.md):

1. Rounding the clipped sum moves each coordinate by at most one step between neighbours, so its norm by √d
   steps; clipping to C − √d/s keeps the integers' sensitivity within s·C.
2. A rounded Gaussian with a deviation of Σ steps is, up to aliasing of exp(−2π²Σ²), a Gaussian plus a uniform
   on ±½ seen at the integers; h of them add up to the rounding of N(0, h·Σ²) plus independent noise. An
   integer shift commutes with rounding, so the sum is post-processing of the Gaussian mechanism.

Pure numbers: draws nothing, knows no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privacy.plan import DpTerms, TrainingTerms, VectorTerms

LEAST_DEVIATION = 4.0
"""Steps of the grid that a share's deviation must have: aliasing is below e^−315 then."""
MOST_MARGIN = 0.01
"""Largest part of the clip norm that may go to rounding; a coarser grid is refused as a waste."""


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
