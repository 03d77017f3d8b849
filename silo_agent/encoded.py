"""A silo's update as ring elements, stretch by stretch: [ŵ·Δ, ŵ] in fixed point.

Coordinates are rounded stochastically; what is on the grid already is taken as it is. Schemes cut the vector
differently; whatever the cut, each element is encoded once, in order, under fresh dither. Memory does not
grow with the model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError
from privacy.plan import RoundPlan
from privacy.secagg.encoding import encode_fresh, encode_steps, encode_weight
from privacy.secagg.keystream import DitherStream
from silo_agent.update import FloatUpdate, GridUpdate, Update


class EncodedUpdate:
    """One encoding of one update; drawing an element twice would show two roundings of it."""

    def __init__(self, plan: RoundPlan, update: Update, weight: float) -> None:
        """
        Args:
            update: of d coordinates.
            weight: ŵ in (0, 1]; 1 for what is on the grid.

        Raises:
            SealsumError: the update is not as long as the plan's, or is on the grid and to be weighted: a
                bug, not a peer's doing.
        """
        if len(update) != plan.parameters:
            raise SealsumError(f"sharing: expected an update of {plan.parameters} coordinates")
        if isinstance(update, GridUpdate) and weight != 1.0:
            raise SealsumError("sharing: expected weight 1 for an update on the grid")
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
        encoded = self._coordinates(start, min(start + length, self._plan.parameters))
        if len(encoded) < length:
            return np.concatenate([encoded, encode_weight(self._weight, self._plan.vector)])
        return encoded

    def _coordinates(self, start: int, end: int) -> NDArray[np.uint32]:
        if isinstance(self._update, FloatUpdate):
            values = self._update.values[start:end]
            return encode_fresh(values, self._weight, self._plan.vector, self._dither)
        return encode_steps(self._update.steps[start:end], self._plan.vector)
