"""What a job predicts, in public terms: a class, a number, a mask of an image, or a time until an event.

Which loss a record has follows from it (``silo_agent.engines.loss``), and whether records have one each: only
such a loss can be clipped under DP. Ranges and horizons are public, so that encoding a label costs no budget.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from privacy.canonical import Frozen, Real
from privacy.errors import Unprocessable

Column = Annotated[str, Field(min_length=1, max_length=100)]
Cell = Annotated[str, Field(max_length=100)]
LabelKind: TypeAlias = Literal["classes", "real", "mask", "cox", "exponential"]
"""What a label is and which loss it has; ``cox`` and ``exponential`` are two losses of survival times."""
LEAST_SIDE: Final = 4


class _OneColumn(Frozen):
    column: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        """The label's own columns."""
        return (self.column,)


class Label(_OneColumn):
    """Binary label: 1 where the column's number is above ``threshold``."""

    threshold: Real

    @property
    def kind(self) -> LabelKind:
        """One logit."""
        return "classes"

    @property
    def classes(self) -> int:
        """Below and above."""
        return 2

    @property
    def outputs(self) -> int:
        """One logit tells two classes apart."""
        return 1


class ClassLabel(_OneColumn):
    """One of a public list of classes, which a record's cell names; class k is the k-th of them, from 0."""

    categories: Annotated[tuple[Cell, ...], Field(min_length=2, max_length=1000)]

    @property
    def kind(self) -> LabelKind:
        """A logit for each class."""
        return "classes"

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.categories)

    @property
    def outputs(self) -> int:
        """One logit tells two classes apart, and K > 2 classes take one each."""
        return 1 if self.classes == 2 else self.classes

    @model_validator(mode="after")
    def _classes_are_distinct(self) -> Self:
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"label {self.column}: expected distinct classes")
        return self


class RealLabel(_OneColumn):
    """A number (regression), mapped from its public range [low, high] to [−1, 1]; outside it is clamped.

    Models predict on that scale; reports of metrics are in the column's own unit again.
    """

    low: Real
    high: Real

    @property
    def kind(self) -> LabelKind:
        """The predicted number itself."""
        return "real"

    @property
    def outputs(self) -> int:
        """The number."""
        return 1

    @model_validator(mode="after")
    def _range_is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"label {self.column}: expected low < high")
        return self


class MaskLabel(Frozen):
    """Which pixels of a square image belong to what is sought (segmentation): a column of 0 or 1 a pixel."""

    pixels: Annotated[tuple[Column, ...], Field(min_length=LEAST_SIDE**2, max_length=65_536)]
    """Row by row, as the image's own pixels come."""

    @property
    def kind(self) -> LabelKind:
        """A logit for each pixel."""
        return "mask"

    @property
    def outputs(self) -> int:
        """One for each pixel."""
        return len(self.pixels)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The label's own columns."""
        return self.pixels


class SurvivalLabel(Frozen):
    """Time until an event, or until a record was last seen without it; 0 or 1 in ``event`` says which.

    Times count up to the public ``horizon``: who lived past it is censored there.
    """

    time: Column
    event: Column
    horizon: Annotated[Real, Field(gt=0)]
    """In the unit of ``time``. Models see times as parts of it."""
    loss: Literal["cox", "exponential"] = "cox"
    """``cox``: the partial likelihood within each silo, without DP only. ``exponential``: proportional
    hazards over a constant baseline, which is a loss of each record by itself."""

    @property
    def kind(self) -> LabelKind:
        """The logarithm of a record's hazard, up to a constant with ``cox``."""
        return self.loss

    @property
    def outputs(self) -> int:
        """The log-hazard."""
        return 1

    @property
    def columns(self) -> tuple[Column, ...]:
        """The label's own columns."""
        return (self.time, self.event)


_TAGS: Final = {
    "threshold": "binary",
    "categories": "classes",
    "low": "real",
    "high": "real",
    "pixels": "mask",
    "time": "survival",
    "event": "survival",
}
"""Fields that tell kinds apart: labels of earlier jobs carry no ``kind``, and their digests must hold."""
_TAG_OF: Final[dict[type, str]] = {
    Label: "binary",
    ClassLabel: "classes",
    RealLabel: "real",
    MaskLabel: "mask",
    SurvivalLabel: "survival",
}


def _tag(value: Any) -> str | None:
    if isinstance(value, dict):
        return next((tag for field, tag in _TAGS.items() if field in value), None)
    return _TAG_OF.get(type(value))


AnyLabel = Annotated[
    Annotated[Label, Tag("binary")]
    | Annotated[ClassLabel, Tag("classes")]
    | Annotated[RealLabel, Tag("real")]
    | Annotated[MaskLabel, Tag("mask")]
    | Annotated[SurvivalLabel, Tag("survival")],
    Discriminator(
        _tag,
        custom_error_type="label_kind",
        custom_error_message=(
            "expected a column with threshold (two classes), categories (classes), or low and high (a "
            "number); or pixels (a mask); or time, event and horizon (survival)"
        ),
    ),
]
"""What ``data.label`` may be."""


def classes_of(label: AnyLabel) -> int:
    """How many classes a label tells apart.

    Raises:
        Unprocessable: it is no label of classes.
    """
    if isinstance(label, Label | ClassLabel):
        return label.classes
    raise Unprocessable(
        f"data.label: expected a label of classes (threshold or categories), got {kind_name(label.kind)}"
    )


def kind_name(kind: LabelKind) -> str:
    """A kind for people."""
    return _NAMES[kind]


def refuse_coupled_loss(label: AnyLabel) -> None:
    """Refuse to train under DP on a loss that no record has by itself.

    Raises:
        ValueError: the label's loss is the Cox partial likelihood.
    """
    if label.kind == "cox":
        raise ValueError(
            "data.label: the Cox partial likelihood compares each patient with all who are still at risk, so "
            "one patient changes the gradients of others and no clip bounds what she changes; under DP write "
            "loss: exponential (proportional hazards over a constant baseline), or train without DP"
        )


_NAMES: Final[dict[LabelKind, str]] = {
    "classes": "classes",
    "real": "a number",
    "mask": "a mask",
    "cox": "survival times (cox)",
    "exponential": "survival times (exponential)",
}
