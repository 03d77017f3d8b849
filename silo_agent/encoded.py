"""A silo's update as ring elements, stretch by stretch: [ŵ·Δ, ŵ] in fixed point, stochastically rounded.

Schemes cut the vector differently; whatever the cut, each element is encoded once, in order, under fresh
dither. Memory does not grow with the model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError
from privacy.plan import RoundPlan
from privacy.secagg.encoding import encode_fresh, encode_weight
from privacy.secagg.keystream import DitherStream


class EncodedUpdate:
    """One encoding of one update; drawing an element twice would show two roundings of it."""

    def __init__(self, plan: RoundPlan, update: NDArray[np.float32], weight: float) -> None:
        """
        Args:
            update: float32[d].
            weight: ŵ in (0, 1].

        Raises:
            SealsumError: the update is not as long as the plan's: a bug, not a peer's doing.
        """
        if update.shape != (plan.parameters,):
            raise SealsumError(f"sharing: expected an update of shape ({plan.parameters},)")
        self._plan = plan
        self._update = update
        self._weight = weight
        self._dither = DitherStream()
        self._next = 0

    def elements(self, start: int, length: int) -> NDArray[np.uint32]:
        """Elements [start, start + length) of the vector, uint32[length]; stretches come in order.

        Raises:
            UpdateOutOfRange: a coordinate is not finite or beyond the plan's bound; never clipped to fit.
            SealsumError: not the next stretch, or beyond the vector: a bug, not a peer's doing.
        """
        if start != self._next or start + length > self._plan.vector_length:
            raise SealsumError(f"sharing: expected elements from {self._next}, got {start}")
        self._next = start + length
        values = self._update[start : start + length]
        encoded = encode_fresh(values, self._weight, self._plan.vector, self._dither)
        if len(values) < length:
            return np.concatenate([encoded, encode_weight(self._weight, self._plan.vector)])
        return encoded
