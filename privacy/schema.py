"""What a job says about tabular data, in public terms only: columns, ranges, categories, missing values.

Scaling by public ranges costs no privacy budget; scaling each hospital by its own moments costs ten
points of accuracy and, undisclosed, breaks the DP claim. Knows no file format.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real, digest_of
from privacy.fixed_features import FixedFeatures, Views
from privacy.ids import Digest
from privacy.labels import AnyLabel, Cell, Column, MaskLabel
from privacy.labels import ClassLabel as ClassLabel
from privacy.labels import Label as Label


class NumericFeature(Frozen):
    """A number, mapped from its public range [low, high] to [−1, 1]; values outside are clamped to it.

    Clamping is data-independent pre-processing of one record, so the DP unit is unaffected.
    """

    kind: Literal["numeric"] = "numeric"
    column: Column
    low: Real
    high: Real
    impute: Real
    """Public constant used for a missing value."""
    missing: tuple[Cell, ...] = ("",)
    """Cell texts that mean "missing" (for example "" and "0" for cholesterol)."""
    indicator: bool = False
    """Adds a coordinate that is 1 where the value was missing."""

    @model_validator(mode="after")
    def _range_is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"feature {self.column}: expected low < high")
        if not self.low <= self.impute <= self.high:
            raise ValueError(f"feature {self.column}: expected impute within [low, high]")
        return self

    @property
    def width(self) -> int:
        """Coordinates this feature takes."""
        return 1 + int(self.indicator)


class CategoricalFeature(Frozen):
    """One of a public list of categories, one-hot; a missing cell sets the indicator, or nothing."""

    kind: Literal["categorical"] = "categorical"
    column: Column
    categories: Annotated[tuple[Cell, ...], Field(min_length=1)]
    missing: tuple[Cell, ...] = ("",)
    indicator: bool = False

    @model_validator(mode="after")
    def _categories_are_distinct(self) -> Self:
        if len(set(self.categories) | set(self.missing)) != len(self.categories) + len(self.missing):
            raise ValueError(
                f"feature {self.column}: expected distinct categories, none of them also missing"
            )
        return self

    @property
    def width(self) -> int:
        """Coordinates this feature takes."""
        return len(self.categories) + int(self.indicator)


Feature = Annotated[NumericFeature | CategoricalFeature, Field(discriminator="kind")]


class DataSchema(Frozen):
    """Features in order, the label, and the column that names the patient."""

    features: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=10_000)]
    label: AnyLabel
    patient_id: Column
    record_norm: Annotated[Real, Field(gt=0)] | None = None
    """Each record's feature vector is scaled down to this L2 norm if longer (data-independent)."""
    transform: FixedFeatures | None = Field(default=None, exclude_if=lambda terms: terms is None)
    """What models are given instead of the features, which are an image's pixels row by row."""
    views: Views | None = Field(default=None, exclude_if=lambda terms: terms is None)
    """Views of each image that are trained on together, before the transform; features are pixels then."""

    @property
    def width(self) -> int:
        """Length of one record's feature vector, as models are given it."""
        return self.columns_width if self.transform is None else self.transform.outputs

    @property
    def columns_width(self) -> int:
        """Coordinates that the columns give, before the transform."""
        return sum(feature.width for feature in self.features)

    @cached_property
    def digest(self) -> Digest:
        """What the dataset card and the evidence pack quote."""
        return digest_of("sealsum/data-schema/v1", self)

    @model_validator(mode="after")
    def _the_transform_reads_the_columns(self) -> Self:
        if self.transform is not None and self.transform.inputs != self.columns_width:
            raise ValueError(
                f"transform: expected {self.transform.inputs} coordinates, one a pixel of "
                f"{self.transform.rows} × {self.transform.columns}, got {self.columns_width} from features"
            )
        return self

    @model_validator(mode="after")
    def _views_are_of_the_columns(self) -> Self:
        if self.views is not None and self.views.rows * self.views.columns != self.columns_width:
            raise ValueError(
                f"views: expected {self.views.rows * self.views.columns} coordinates, one a pixel of "
                f"{self.views.rows} × {self.views.columns}, got {self.columns_width} from features"
            )
        return self

    @model_validator(mode="after")
    def _views_move_no_mask(self) -> Self:
        if self.views is not None and isinstance(self.label, MaskLabel):
            raise ValueError("views: expected none with a mask, which would have to move with its image")
        return self

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        columns = [feature.column for feature in self.features]
        if len(set(columns)) != len(columns):
            raise ValueError("features: expected each column once")
        if {*self.label.columns, self.patient_id} & set(columns):
            raise ValueError("features: expected neither the label nor the patient id among them")
        if len({*self.label.columns, self.patient_id}) != len(self.label.columns) + 1:
            raise ValueError("label: expected distinct columns, none of them the patient id")
        return self
