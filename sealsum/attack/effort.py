"""How much work a suite puts into each attack: ``quick`` for every day and CI, ``full`` for a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from privacy.wire.attack_results import SuiteName as SuiteName


@dataclass(frozen=True)
class Effort:
    """Counts; they move precision, never what is claimed."""

    canary_runs: int
    """Opened sums of 2,000 canaries each, per arm."""
    update_runs: int
    """Bare updates of 2,000 canaries each, per arm."""
    shadows: int
    """Shadow models of the membership attack."""
    matching_steps: int
    """Steps of the optimiser that matches gradients."""
    noise_levels: tuple[float, ...]
    """σ under which reconstructions are tried, beside none."""


EFFORTS: Final[Mapping[SuiteName, Effort]] = MappingProxyType(
    {
        "quick": Effort(canary_runs=16, update_runs=4, shadows=8, matching_steps=600, noise_levels=(1.0,)),
        "full": Effort(
            canary_runs=150, update_runs=40, shadows=64, matching_steps=3000, noise_levels=(0.1, 0.3, 1.0)
        ),
    }
)
