"""What a step of DP-SGD asks of an engine: the sum of all units' gradients, each clipped. Knows no noise."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from silo_agent.data.records import Records

CLIP_MARGIN: Final = 1.0 - 1e-12
"""float64 norms and products round by far less; clipping this much tighter keeps each unit within C."""
FLOAT64_ROUNDING: Final = 2.0**-20
"""``sum_rounding`` of sums in float64: n·u·n·C for n units that pull one way, twice, holds up to 10⁶
(a pass adds 256, and passes add up: n/256 + 256 roundings)."""
FLOAT32_ROUNDING: Final = 2.0**-8
"""``sum_rounding`` where products over units are float32 and checked: sums that err by more are redone."""


class StepEngine(Protocol):
    """Holds one module, whose parameters it neither moves nor copies."""

    name: str
    """As the log names it."""
    module: nn.Module
    """What it computes gradients of, in training mode."""
    sum_rounding: float
    """Part of the clip that sums over units may round by, with a unit and without it together."""

    def clipped_sum(self, records: Records, sample: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        """Σ over the sampled units of g · min(1, clip / ‖g‖₂): float64[d], in the order of the layout.

        g is the sum of the gradients of all the unit's records. Norms and factors are float64. A unit whose
        gradient is NaN or infinite adds zero: otherwise one such record turns every parameter into NaN, which
        shows that it is there. So does a frozen parameter. An empty sample is zero.

        Args:
            sample: units of ``records``, ascending.
        """


def private_sum(
    engine: StepEngine, records: Records, sample: NDArray[np.intp], clip: float
) -> NDArray[np.float64]:
    """Σ over the sampled units of clipped gradients, as computed, of sensitivity ``clip``: float64[d].

    A unit more or less moves the exact sum by its own gradient and the computed one by two roundings besides:
    units are clipped so much tighter that all of it together stays within ``clip`` (docs/privacy.md).

    A record of v views adds their mean: the sum over its rows clipped to v · clip, and divided by v. However
    many views there are, the unit moves what is returned as one record does (De et al. 2022).
    """
    tighter = clip * (1 - engine.sum_rounding)
    return engine.clipped_sum(records, sample, records.views * tighter) / records.views
