"""What an algorithm hands to a scheme: coordinates to be put on the plan's grid, or steps already on it.

Local training ends in float32 coordinates, which are rounded stochastically while they are sealed. Where
noise is part of a mechanism of integers (``privacy.dp.integer_noise``), another rounding would change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.vectors import VectorName
from silo_agent.algorithms.memory import NOTHING, Arrays


@dataclass(frozen=True)
class FloatUpdate:
    """float32[d], not on any grid yet."""

    values: NDArray[np.float32] = field(repr=False)
    further: Mapping[VectorName, Update] = field(default_factory=dict, repr=False)
    """The plan's further vectors, by name; none of them has any of its own."""
    weight: float | None = field(default=None, repr=False)
    """ŵ in (0, 1] where the plan's weights are the silo's own; it leaves inside the sum only."""
    keep: Arrays = field(default_factory=lambda: NOTHING, repr=False)
    """What the silo remembers for its next round if this one counts; it never leaves."""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class GridUpdate:
    """float64[d] of integers: steps of 2^−scale_bits of the plan's vector, not yet known to be in range."""

    steps: NDArray[np.float64] = field(repr=False)
    further: Mapping[VectorName, Update] = field(default_factory=dict, repr=False)
    keep: Arrays = field(default_factory=lambda: NOTHING, repr=False)
    """Both as of a ``FloatUpdate``."""

    def __len__(self) -> int:
        return len(self.steps)


Update: TypeAlias = FloatUpdate | GridUpdate


def kept_of(update: Update) -> Arrays:
    """What the silo is to remember of it."""
    return update.keep


def with_kept(update: Update, keep: Arrays) -> Update:
    """The same update, and this to remember of it."""
    return replace(update, keep=keep)
