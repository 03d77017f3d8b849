"""Fixed features of images that a job may name: public formulas, applied to each record alone.

With few records they beat learning features under noise by far, and cost no privacy budget: nothing in them
was fitted to data. Sizes only; what computes them is the silo's (``silo_agent.features``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

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
