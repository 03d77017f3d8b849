"""``compression`` of a job file: fewer bytes a round by coarser numbers, by fewer of them, or by both."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real
from privacy.plan import TrainingTerms
from privacy.sent_terms import SparseTerms
from sealsum.job_further import with_clip


class Compression(Frozen):
    """Updates as small integers, or a part of their coordinates."""

    bits: Annotated[int, Field(ge=2, le=16)] | None = None
    """What a coordinate is rounded to, at random between two neighbours; 8 for int8."""
    coordinate_bound: Annotated[Real, Field(gt=0, le=8)] = 0.5
    """With ``bits``: coordinates beyond it are brought within it (``local.coordinate_clip``)."""
    coordinates: Literal["random", "top"] | None = None
    """Which ones a round sends (``training.sparse`` in the signed terms)."""
    share: Annotated[Real, Field(gt=0, lt=1)] | None = None
    """How many of all."""
    feedback: bool = False
    """What was not sent is added to the next round's update."""

    @model_validator(mode="after")
    def _something_is_compressed(self) -> Self:
        if self.bits is None and self.coordinates is None:
            raise ValueError("expected bits, coordinates or both, got neither")
        if (self.coordinates is None) != (self.share is None):
            raise ValueError("share: expected it with coordinates, and only there")
        if self.feedback and self.coordinates is None:
            raise ValueError("feedback: expected it with coordinates only")
        if self.bits is None and "coordinate_bound" in self.model_fields_set:
            raise ValueError("coordinate_bound: expected it with bits only")
        return self

    def applied_to(self, training: TrainingTerms) -> TrainingTerms:
        """The training terms of a job that is compressed so."""
        if self.bits is not None:
            training = with_clip(training, self.coordinate_bound)
        if self.coordinates is None or self.share is None:
            return training
        sparse = SparseTerms(kind=self.coordinates, share=self.share, feedback=self.feedback)
        return training.model_copy(update={"sparse": sparse})
