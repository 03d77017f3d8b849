"""A silo's vectors of a round as ring elements, stretch by stretch: [ŵ·Δ, ŵ] in fixed point.

Coordinates are rounded stochastically, and packed where the plan packs; what is on the grid already is
taken as it is. Schemes cut a vector differently; whatever the cut, each element is encoded once, in order,
under fresh dither. Memory does not grow with the model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError
from privacy.plan import RoundPlan
from privacy.secagg.encoding import encode_fresh, encode_steps, encode_weight
from privacy.secagg.keystream import DitherStream
from privacy.secagg.packing import pack
from privacy.secagg.vectors import MODEL, NamedVector, VectorName, vectors_of
from silo_agent.update import FloatUpdate, GridUpdate, Update


class EncodedUpdate:
    """One encoding of all of a round's vectors; drawing an element twice would show two roundings of it."""

    def __init__(self, plan: RoundPlan, update: Update, weight: float) -> None:
        """
        Args:
            update: of d coordinates, with the plan's further vectors.
            weight: ŵ in (0, 1], of every vector that is weighted; 1 for what is on the grid.

        Raises:
            SealsumError: vectors are missing, not as long as the plan's, or on the grid and to be weighted: a
                bug, not a peer's doing.
        """
        given = {MODEL: update, **update.further}
        vectors = vectors_of(plan).vectors
        if len(given) != len(update.further) + 1 or set(given) != {vector.name for vector in vectors}:
            asked = ", ".join(vector.name for vector in vectors)
            raise SealsumError(f"sharing: expected the vectors {asked}, got {', '.join(given)}")
        self._vectors = {
            vector.name: _EncodedVector(vector, given[vector.name], weight) for vector in vectors
        }

    def elements(self, start: int, length: int, vector: VectorName = MODEL) -> NDArray[np.uint32]:
        """Elements [start, start + length) of a vector, uint32[length]; stretches of each come in order.

        Raises:
            UpdateOutOfRange: a coordinate is not finite or beyond the plan's bound; never clipped to fit.
            SealsumError: not the next stretch, or beyond the vector: a bug, not a peer's doing.
        """
        return self._vectors[vector].elements(start, length)


class _EncodedVector:
    """One vector, under dither of its own."""

    def __init__(self, vector: NamedVector, update: Update, weight: float) -> None:
        if len(update) != vector.coordinates:
            raise SealsumError(
                f"sharing: expected an update of {vector.coordinates} coordinates ({vector.name})"
            )
        if isinstance(update, GridUpdate) and vector.weighted and weight != 1.0:
            raise SealsumError("sharing: expected weight 1 for an update on the grid")
        self._vector = vector
        self._update = update
        self._weight = weight if vector.weighted else 1.0
        self._dither = DitherStream()
        self._next = 0

    def elements(self, start: int, length: int) -> NDArray[np.uint32]:
        if start != self._next or start + length > self._vector.length:
            raise SealsumError(f"sharing: expected elements from {self._next}, got {start}")
        self._next = start + length
        per, coordinates = self._vector.terms.per_element, self._vector.coordinates
        encoded = self._coordinates(start * per, min((start + length) * per, coordinates))
        if per > 1:
            encoded = pack(encoded, self._vector.terms)
        if len(encoded) < length:
            return np.concatenate([encoded, encode_weight(self._weight, self._vector.terms)])
        return encoded

    def _coordinates(self, start: int, end: int) -> NDArray[np.uint32]:
        if isinstance(self._update, FloatUpdate):
            values = self._update.values[start:end]
            return encode_fresh(values, self._weight, self._vector.terms, self._dither)
        return encode_steps(self._update.steps[start:end], self._vector.terms)
