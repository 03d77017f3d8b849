"""What a plan says of the vectors that a round sums: the model's, and further ones such as training metrics.

Further vectors travel under the same context, seed or key agreement and manifest as the model's update, each
under keys of its own and at its own scale. Knows no scheme and no plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen, Real

LEAST_REAL: Final = 1e-30
MOST_REAL: Final = 1e30
"""Far beyond any sensible term; within them no square, product or quotient that a gate forms over- or
underflows: what would end a silo's process with an arithmetic error is refused as a message instead."""
PositiveReal = Annotated[Real, Field(ge=LEAST_REAL, le=MOST_REAL)]
NoiseMultiplier = Annotated[Real, Field(ge=LEAST_REAL, le=1e6)]
"""With more, nothing is left to release, and accountants run out of digits."""
FurtherName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
MetricName = Literal["accuracy", "loss"]
METRICS: Final = "metrics"
"""The vector that carries what ``MetricTerms`` ask for."""
CURVATURE: Final = "curvature"
"""Of ``qfedavg``: one number, what each silo adds to the divisor of the step beside its weight."""
HESSIAN: Final = "hessian"
"""Of ``newton``: the upper triangle of the mean Hessian, row by row."""
CONTROL: Final = "control"
"""Of SCAFFOLD in two sums: how far each silo's steps went, over steps and learning rate."""
MASK: Final = "mask"
"""Of ``sparse_masks``: 1 for each coordinate that a silo sends, 0 for the others."""
MAX_FURTHER: Final = 15
MOST_COORDINATES: Final = 1024
"""Of a further vector: what its sum opens to is published whole, in the round's signed result."""


class VectorTerms(Frozen):
    """How d float coordinates, and one weight where there is one, become ring elements of Z_2^32."""

    coordinate_bound: PositiveReal
    """Largest |ŵ·Δ| of a coordinate; a value beyond it is refused at the silo, never clipped."""
    scale_bits: Annotated[int, Field(ge=1, le=30)]
    """Fixed-point scale S = 2^scale_bits."""
    ring_bits: Literal[32] = 32
    per_element: Annotated[int, Field(ge=1, le=8, exclude_if=lambda count: count == 1)] = 1
    """Coordinates that share a ring element (``privacy.secagg.packing``); 1 is not spelled."""

    def elements(self, coordinates: int) -> int:
        """Ring elements that so many coordinates take."""
        return -(-coordinates // self.per_element)


class FurtherVector(Frozen):
    """One vector that a round sums beside the model's."""

    name: FurtherName
    coordinates: Annotated[int, Field(ge=1, le=MOST_COORDINATES)]
    terms: VectorTerms
    opens_to: Literal["mean", "sum"] = "mean"
    """``mean``: ŵ·x travels with ŵ behind it, and Σŵ·x / Σŵ is read. ``sum``: x alone, and Σx is read."""


class MetricTerms(Frozen):
    """Training metrics of each step's sample on the model that came, released under DP with the gradient.

    A sampled unit adds (its metrics, each scaled into [0, 1], then 1) / √k, k numbers of norm at most 1.
    """

    names: Annotated[tuple[MetricName, ...], Field(min_length=1)]
    noise_multiplier: NoiseMultiplier
    """σ of the noise on that sum, relative to its sensitivity of 1."""
    loss_cap: PositiveReal | None = None
    """Losses are capped here and divided by it; goes with ``loss``, and only with it."""

    @model_validator(mode="after")
    def _names_are_sorted_and_a_cap_goes_with_losses(self) -> Self:
        if list(self.names) != sorted(set(self.names)):
            raise ValueError("names: expected distinct names, sorted")
        if ("loss" in self.names) != (self.loss_cap is not None):
            raise ValueError("loss_cap: expected it with loss, and only there")
        return self

    @property
    def coordinates(self) -> int:
        """k: one for each name, and one that counts."""
        return len(self.names) + 1


def check_packing(terms: VectorTerms, scheme: str, proven: bool, plain: bool) -> None:
    """Raises ValueError, saying why, unless a round of ``scheme`` can pack the model's coordinates.

    Args:
        proven: a proof of validity bounds the update. plain: it is a mean of equal weights, rounded at silos.
    """
    if terms.per_element == 1:
        return
    if scheme not in ("additive", "pairwise"):
        raise ValueError(
            f"vector.per_element: expected 1 with {scheme}, whose ciphertexts have a size of their own; "
            "fewer scale_bits make those shorter"
        )
    if proven:
        raise ValueError("vector.per_element: expected 1 with validity, whose proof is of single coordinates")
    if not plain:
        raise ValueError(
            "vector.per_element: expected 1 but with fedavg or dp_fedavg and uniform weights: weights, noise "
            "on the grid and differences need steps finer than a few bits"
        )


def check_further(
    further: Sequence[FurtherVector], metrics: MetricTerms | None, scheme: str, proven: bool
) -> None:
    """Raises ValueError unless a round of ``scheme`` can sum these vectors beside the model's.

    Under a joint key each silo signs *one* partial decryption a round, of the model's vector; a proof of
    validity (``proven``) bounds the model's vector, and would leave the others without a bound.
    """
    names = [vector.name for vector in further]
    if len(set(names) | {"model"}) != len(names) + 1:
        raise ValueError("further: expected distinct names of vectors, and not the model's")
    if names and scheme.startswith("threshold_"):
        raise ValueError(f"further: expected none with {scheme}: its one decryption is of the model's vector")
    if names and proven:
        raise ValueError("further: expected none with validity, which is proven of the model's vector only")
    carried = [vector for vector in further if vector.name == METRICS]
    if (metrics is not None) != bool(carried):
        raise ValueError(f"further: expected a vector {METRICS} with dp.metrics, and only with it")
    for vector in carried:
        if metrics is not None and (vector.coordinates, vector.opens_to) != (metrics.coordinates, "sum"):
            raise ValueError(
                f"further.{METRICS}: expected {metrics.coordinates} coordinates (one for each name and a "
                f"count) that open to a sum, got {vector.coordinates} that open to a {vector.opens_to}"
            )
