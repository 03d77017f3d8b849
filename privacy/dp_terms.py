"""The terms of differential privacy of a job: what one step of it is, and what it costs as one mechanism."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real
from privacy.model_terms import Count
from privacy.vector_terms import LEAST_REAL, MetricTerms, NoiseMultiplier, PositiveReal

Fraction = Annotated[Real, Field(ge=1e-12, le=1)]
"""A smaller rate samples nobody, and accountants run out of digits."""


class DpTerms(Frozen):
    """DP-SGD at each silo (Abadi et al. 2016). All of it is public and the same for every silo.

    A step draws each unit with probability ``sample_rate`` (Poisson), all its records together, clips the
    gradient that they sum to to ``clip_l2``, adds noise to the sum and divides by ``normaliser``, a public
    constant: dividing by the silo's own count would reveal it.
    """

    model: Literal["local", "distributed"] = "local"
    """Whose noise: with ``local`` each silo adds N(0, (noise_multiplier · clip_l2)²) by itself, and the claim
    holds even if the secure sum fails; with ``distributed`` it adds 1/noise_shares of that variance, and the
    claim is about the sum."""
    noise_shares: Count | None = None
    """With ``distributed``: how many honest silos' noise is in every sum that may be opened, which is at most
    the least number of survivors minus the colluding ones (K − d − t)."""
    unit: Literal["patient", "record"]
    adjacency: Literal["add_remove"] = "add_remove"
    sampling: Literal["poisson"] = "poisson"
    sample_rate: Fraction
    noise_multiplier: NoiseMultiplier
    clip_l2: PositiveReal
    normaliser: PositiveReal
    delta: Annotated[Real, Field(ge=LEAST_REAL, lt=1)]
    records_per_unit: Count = Field(default=1, exclude_if=lambda count: count == 1)
    """Most records of one patient that are used: the first in the file's order, whoever else is in it. With 1
    a second record of a patient is refused."""
    metrics: MetricTerms | None = Field(default=None, exclude_if=lambda terms: terms is None)
    """What of each step's sample is released beside the gradient; not spelled where there is none."""

    @model_validator(mode="after")
    def _a_record_is_one_record(self) -> Self:
        if self.unit == "record" and self.records_per_unit != 1:
            raise ValueError(f"records_per_unit: expected 1 with unit record, got {self.records_per_unit}")
        return self

    @model_validator(mode="after")
    def _shares_are_of_distributed_noise(self) -> Self:
        if (self.model == "distributed") != (self.noise_shares is not None):
            raise ValueError("noise_shares: expected it with model distributed, and only there")
        return self

    @property
    def own_noise_multiplier(self) -> float:
        """σ of the noise that one silo adds, relative to ``clip_l2``."""
        return self.noise_multiplier / math.sqrt(self.noise_shares or 1)

    @property
    def charged_noise_multiplier(self) -> float:
        """σ of a step as a whole, gradient (σ₁) and metrics (σ₂) of one sample: (σ₁⁻² + σ₂⁻²)^(−1/2).

        Each divided by its sensitivity and stacked, a unit moves the pair by at most √(σ₁⁻² + σ₂⁻²) standard
        deviations. Only operations that IEEE 754 rounds correctly, so that an auditor gets the same number.
        """
        if self.metrics is None:
            return self.noise_multiplier
        first, second = self.noise_multiplier, self.metrics.noise_multiplier
        return first * second / math.sqrt(first * first + second * second)
