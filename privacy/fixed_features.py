"""Fixed features of images that a job may name: public formulas, applied to each record alone.

With few records they beat learning features under noise by far, and cost no privacy budget: nothing in them
was fitted to data. Sizes only; what computes them is the silo's (``silo_agent.features``).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen

Pixels = Annotated[int, Field(ge=4, le=256)]
Orientations = Annotated[int, Field(ge=2, le=32)]
SCATTERING_STRIDE = 4
"""Pixels between two positions of a scattering of two scales."""


class OrientedGradients(Frozen):
    """Histograms of gradients by direction (Dalal, Triggs 2005), over cells x cells overlapping windows."""

    kind: Literal["oriented_gradients"] = "oriented_gradients"
    rows: Pixels
    columns: Pixels
    orientations: Orientations = 8
    cells: Annotated[int, Field(ge=1, le=64)] = 4

    @property
    def inputs(self) -> int:
        """Pixels of an image, which the schema's features give row by row."""
        return self.rows * self.columns

    @property
    def outputs(self) -> int:
        """Coordinates of a record."""
        return self.orientations * self.cells**2


class Scattering(Frozen):
    """Averaged moduli of Morlet wavelets of two scales, first and second order (Bruna, Mallat 2013)."""

    kind: Literal["scattering"] = "scattering"
    rows: Pixels
    columns: Pixels
    orientations: Orientations = 8

    @property
    def inputs(self) -> int:
        """Pixels of an image, which the schema's features give row by row."""
        return self.rows * self.columns

    @property
    def outputs(self) -> int:
        """Coordinates of a record: 81 maps with eight orientations, one value each four pixels."""
        maps = 1 + 2 * self.orientations + self.orientations**2
        return maps * -(-self.rows // SCATTERING_STRIDE) * -(-self.columns // SCATTERING_STRIDE)


FixedFeatures = Annotated[OrientedGradients | Scattering, Field(discriminator="kind")]


class Views(Frozen):
    """Views of each image that a job declares to say the same: their gradients are averaged before clipping.

    (De et al. 2022, arXiv 2204.13650, "augmentation multiplicity".) Whatever the views are, a unit adds one
    clipped gradient and is charged as one: a wrong declaration costs accuracy, never privacy.
    """

    rows: Pixels
    columns: Pixels
    shift: Annotated[int, Field(ge=0, le=4)] = 0
    """Pixels by which an image is also moved, up, down and to both sides."""
    mirror: bool = False
    """Whether each is seen from behind as well: not for digits."""

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """Rows down and columns along, the image as it is first."""
        step = self.shift
        return ((0, 0), (step, 0), (-step, 0), (0, step), (0, -step)) if step else ((0, 0),)

    @property
    def count(self) -> int:
        """Views of each image, itself among them."""
        return len(self.moves) * (2 if self.mirror else 1)

    @model_validator(mode="after")
    def _there_are_some(self) -> Self:
        if self.count == 1:
            raise ValueError("views: expected a shift, or mirror: true, got neither; or leave views out")
        return self
