"""What a step of DP-SGD asks of an engine: the sum of all units' gradients, each clipped. Knows no noise."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.records import Records


class StepEngine(Protocol):
    """Holds one module, whose parameters it neither moves nor copies."""

    name: str
    """As the log names it."""

    def clipped_sum(self, records: Records, sample: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        """Σ over the sampled records of g · min(1, clip / ‖g‖₂): float64[d], in the order of the layout.

        Norms, factors and sums are float64. A record whose gradient is NaN or infinite adds zero: otherwise
        one such record turns every parameter into NaN, which shows that it is there. An empty sample is zero.

        Args:
            sample: rows of ``records``, ascending.
        """
