"""The named vectors of one round: what each holds, which keys are its own, where a manifest lists its parts.

A round may sum more than a model's update: control variates, statistics. All travel under one context, one
seed or key agreement and one signed manifest, but each under keystreams of its own: two vectors under one
keystream would give away their difference. Knows no scheme.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Generic, NewType, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen
from privacy.errors import NotFound, SealsumError, Unprocessable
from privacy.plan import Count, RoundPlan, VectorTerms
from privacy.secagg import encoding
from privacy.secagg.packing import assert_fields_hold

VectorName = NewType("VectorName", str)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
VectorNameField = Annotated[VectorName, StringConstraints(pattern=rf"^{_NAME.pattern}$")]

MODEL: Final = VectorName("model")
"""The first vector of every round. Its keys are those of a round that has no other."""
MAX_VECTORS = 16
P = TypeVar("P")
"""A piece of one vector, as a scheme cuts vectors into parts."""


def purpose_for(purpose: str, vector: VectorName) -> str:
    """What a key is for, told apart by vector; the model's carries no name (so golden vectors hold).

    Names hold neither ``/`` nor a zero byte, and no purpose is another one with ``/`` and a name behind it.

    Raises:
        ValueError: it is no vector's name.
    """
    if _NAME.fullmatch(vector) is None:
        raise ValueError("vector: expected a name of a-z, 0-9 and _, at most 32 long")
    return purpose if vector == MODEL else f"{purpose}/{vector}"


class VectorLength(Frozen):
    """A vector by name and number of elements: all that one who adds it up must know."""

    name: VectorNameField
    length: Count


class NamedVector(Frozen):
    """One vector of a round as its plan names it."""

    name: VectorNameField
    coordinates: Count
    terms: VectorTerms
    """Its own scale and bound."""
    weighted: bool = True
    """[ŵ·x, ŵ] if true, so that Σŵ·x / Σŵ can be taken; else x alone, of which the sum is read."""

    @property
    def length(self) -> int:
        """Elements: of the coordinates and, last, the weight of a weighted vector."""
        return self.terms.elements(self.coordinates) + self.weighted

    def encode(
        self, start: int, values: NDArray[np.float32], weight: float, dither: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """The elements from ``start`` on that ``values`` make, and the weight behind the last coordinate.

        Args:
            values: float32[m], a stretch of the flat vector. weight: ŵ in (0, 1], as for every vector of the
                round. dither: uint32[m], uniform, from a cryptographic keystream used for no other vector.

        Returns:
            uint32[m], or uint32[m + 1] where the stretch ends a weighted vector.

        Raises:
            UpdateOutOfRange: a value or the weight is out of the terms' range. ValueError: more values than
                the vector has.
        """
        if self.terms.per_element != 1:
            raise ValueError(f"vector {self.name}: expected one coordinate an element")
        end = start + len(values)
        if end > self.coordinates:
            raise ValueError(f"vector {self.name}: expected {self.coordinates} coordinates, got {end}")
        encoded = encoding.encode(values, weight if self.weighted else 1.0, self.terms, dither)
        if self.weighted and end == self.coordinates:
            return np.concatenate([encoded, encoding.encode_weight(weight, self.terms)])
        return encoded


class RoundVectors(Frozen):
    """All vectors of a round, in the order of their parts in every manifest."""

    vectors: Annotated[tuple[NamedVector, ...], Field(min_length=1, max_length=MAX_VECTORS)]

    @model_validator(mode="after")
    def _the_model_is_first_and_names_are_distinct(self) -> Self:
        check_names(tuple(vector.name for vector in self.vectors))
        return self

    def named(self, name: VectorName) -> NamedVector:
        """Raises NotFound if this round has no vector of that name."""
        for vector in self.vectors:
            if vector.name == name:
                return vector
        raise NotFound(f"vector {name!r}: this round has none of that name")

    @property
    def lengths(self) -> dict[VectorName, int]:
        """Name → elements, in order."""
        return {vector.name: vector.length for vector in self.vectors}

    def places(self, part_count: Callable[[int], int]) -> Places:
        """Where each part of these vectors stands, as a scheme cuts a vector into parts."""
        return Places.of(self.lengths, part_count)

    def parts(self, cut: Callable[[int], Iterable[P]]) -> Iterator[Part[P]]:
        """Every part of every vector in the order of a manifest; ``cut`` gives a vector's, by its length."""
        place = 0
        for vector in self.vectors:
            for piece in cut(vector.length):
                yield Part(place, vector, piece)
                place += 1

    def assert_fit(self, contributors: int) -> None:
        """Refuse terms under which any one of the sums could wrap around the ring.

        Raises:
            Unprocessable: the worst sum of a vector does not stay below 2^31.
        """
        for vector in self.vectors:
            encoding.assert_fits(vector.terms, contributors)
            if vector.terms.per_element > 1:
                assert_fields_hold(vector.terms, contributors)


def vectors_of(plan: RoundPlan) -> RoundVectors:
    """All vectors that a plan's round sums, the model's first."""
    model = NamedVector(name=MODEL, coordinates=plan.coordinates, terms=plan.vector)
    further = (
        NamedVector(
            name=VectorName(vector.name),
            coordinates=vector.coordinates,
            terms=vector.terms,
            weighted=vector.opens_to == "mean",
        )
        for vector in plan.further
    )
    return RoundVectors(vectors=(model, *further))


def check_names(names: tuple[VectorName, ...]) -> None:
    """Raises ValueError unless the first of distinct ``names`` is ``model``."""
    if names[0] != MODEL or len(set(names)) != len(names):
        raise ValueError(f"vectors: expected distinct names, {MODEL!r} first")


@dataclass(frozen=True)
class Part(Generic[P]):
    """One part of one vector, and its place among the parts of all."""

    place: int
    vector: NamedVector
    piece: P


@dataclass(frozen=True)
class Places:
    """Where each part stands in a manifest: all parts of the first vector, then all of the next.

    Part numbers start at 0 in every vector. Cuts differ by scheme, so the counts come from the scheme.
    """

    counts: Mapping[VectorName, int]
    """Name → number of parts, in the round's order."""

    @staticmethod
    def of(lengths: Mapping[VectorName, int], part_count: Callable[[int], int]) -> Places:
        """The places of vectors of these lengths, as a scheme cuts a vector into parts."""
        return Places({vector: part_count(length) for vector, length in lengths.items()})

    @cached_property
    def total(self) -> int:
        """Parts of all vectors: what a manifest must list."""
        return sum(self.counts.values())

    def place(self, vector: VectorName, index: int) -> int:
        """Where part ``index`` of ``vector`` stands.

        Raises:
            NotFound: the round has no such vector, or the vector no such part.
        """
        before = 0
        for name, count in self.counts.items():
            if name == vector:
                if 0 <= index < count:
                    return before + index
                raise NotFound(f"part: expected 0 to {count - 1} of vector {vector}, got {index}")
            before += count
        raise NotFound(f"vector {vector!r}: this round has none of that name")

    def at(self, place: int) -> tuple[VectorName, int]:
        """Vector and part number of a place: the opposite of ``place``.

        Raises:
            Unprocessable: there is no such place.
        """
        before = 0
        for name, count in self.counts.items():
            if before <= place < before + count:
                return name, place - before
            before += count
        raise Unprocessable(f"part: expected 0 to {self.total - 1}, got {place}")

    def __iter__(self) -> Iterator[tuple[VectorName, int]]:
        """Vector and part number of every place, in order."""
        for name, count in self.counts.items():
            for index in range(count):
                yield name, index


class WeightImplausible(SealsumError):
    """The opened weights are not ones that the survivors can have; nothing is divided by them."""


@dataclass(frozen=True)
class TotalWeight:
    """Σŵ of one opened vector, checked: the only thing that a sum is divided by."""

    vector: VectorName
    value: float


def total_weight(vector: NamedVector, last: NDArray[np.uint32], survivors: int) -> TotalWeight:
    """Read Σŵ from the last element of an opened sum.

    (1) The vector carries a weight. (2) 0 < Σŵ ≤ the number of survivors, each of whom weighs at most 1.

    Args:
        last: uint32[m], a stretch that ends the vector.

    Raises:
        ValueError: (1). WeightImplausible: (2).
    """
    # (1)
    if not vector.weighted:
        raise ValueError(f"vector {vector.name}: it carries no weight; its sum is read as it is")
    value = float(encoding.decode(last[-1:], vector.terms)[0])
    # (2)
    if not 0.0 < value <= survivors:
        raise WeightImplausible(
            f"vector {vector.name}: its weight is not one that {survivors} survivors can have; "
            "nothing is divided by it"
        )
    return TotalWeight(vector.name, value)


def mean(vector: NamedVector, total: NDArray[np.uint32], weight: TotalWeight) -> NDArray[np.float64]:
    """Σŵ·x / Σŵ of a stretch of coordinates, uint32[m], as float64[m].

    Raises:
        ValueError: the weight was read from another vector.
    """
    if weight.vector != vector.name:
        raise ValueError(f"vector {vector.name}: expected its own weight, got that of {weight.vector}")
    return encoding.decode(total, vector.terms) / weight.value
