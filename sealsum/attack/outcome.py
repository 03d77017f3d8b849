"""What one attack came to, and what that says of the protection it was run against. Knows no attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privacy.wire.attack_results import Verdict


@dataclass(frozen=True)
class Outcome:
    """One attack under one protection."""

    attack: str
    protection: str
    protected: bool
    """Whether Sealsum claims that the attack fails here."""
    succeeded: bool
    measured: str
    expected: str
    """The bound or claim that ``measured`` is held against."""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """As ``Verdict``."""
        if self.protected:
            return "VIOLATED" if self.succeeded else "consistent"
        return "succeeds" if self.succeeded else "NO POWER"

    @property
    def as_expected(self) -> bool:
        """Whether the attack failed or succeeded where it must."""
        return self.succeeded != self.protected


@dataclass(frozen=True)
class Strip:
    """A row of pictures for the report: gray images in [0, 1], float64[n, side, side]."""

    title: str
    images: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class Findings:
    """What one attack of a suite brought."""

    outcomes: tuple[Outcome, ...]
    strips: tuple[Strip, ...] = ()
    """Originals first, then what came of them."""
