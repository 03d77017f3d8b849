"""What an algorithm remembers at its silo from one round to the next: named arrays, and which model they go
with.

A round's new arrays count only once its published result names this silo among the survivors of the model it
trained from (``silo_agent.algorithm_state`` keeps that rule on disk, the simulator in memory): a silo that
dropped out remembers what it remembered before. Knows no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.ids import Digest

Arrays = Mapping[str, NDArray[np.float32]]
"""Name (a-z, 0-9, _) → float32 of any shape."""
NOTHING: Final[Arrays] = MappingProxyType({})


@dataclass(frozen=True)
class Memory:
    """What is remembered of the last round that counted; empty before the first."""

    arrays: Arrays = field(default_factory=lambda: NOTHING, repr=False)
    round: int = 0
    """That round's number; 0 for none."""
    model_out: Digest | None = None
    """The model that came out of it."""


FIRST: Final = Memory()
