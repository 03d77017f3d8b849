"""What a personal model brought its silo, as it is kept and shown: numbers only, no torch."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from privacy.canonical import Frozen
from privacy.ids import HexDigest, JobName

LOCAL_ONLY: Final = "local_only"
SHARED: Final = "shared"
PERSONAL: Final = "personal"
MethodName = Literal["fine_tune", "map", "ditto"]


class Figure(Frozen):
    """A number on the patients held out, and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Standing(Frozen):
    """One model at this silo: how it does on the silo's own held-out patients, by metric."""

    figures: dict[str, Figure]
    over_local_only: dict[str, Figure] = Field(default_factory=dict)
    """By how much it is better than the silo's own model, on the same patients."""
    over_shared: dict[str, Figure] = Field(default_factory=dict)
    """By how much it is better than the job's."""


class Gains(Frozen):
    """What one personal model of one job brought this silo."""

    job: JobName
    job_digest: HexDigest
    method: str
    chosen: dict[str, float]
    """What the method settled on, by cross-validation or as it was told."""
    layers: str
    made_at: str
    shared_model: HexDigest
    holdout: str
    """What is known of the patients scored, in a sentence."""
    trained_patients: int
    held_out_patients: int
    models: dict[str, Standing]
    """``local_only``, ``shared`` and ``personal``."""

    @property
    def sentence(self) -> str:
        """What a person would ask first, by the loss: it notices what accuracy on few patients does not."""
        gain = self.models[PERSONAL].over_local_only["loss"]
        word = "better than" if gain.low > 0 else "worse than" if gain.high < 0 else "not told apart from"
        return (
            f"The personal model ({self.method}) is {word} this silo's own model on {self.held_out_patients} "
            f"patients held out: by {gain} in mean loss."
        )
