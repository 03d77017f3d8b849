"""What chaos does to whom, and how often: drawn from a seed. Starts nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "stall"]
KINDS: tuple[Kind, ...] = ("kill", "kill", "stall")
"""Two of three are killed (SIGKILL); the others stand still for a while (SIGSTOP), connections open."""


@dataclass(frozen=True)
class Strike:
    """One fault that befalls one party."""

    kind: Kind
    party: str
    after_s: float
    """So long after the federation has recovered from the one before."""
    lasts_s: float
    """Until the party is started again, or goes on."""


def strikes(seed: int, parties: Sequence[str]) -> Iterator[Strike]:
    """Faults without end; the same seed strikes the same parties in the same order."""
    draw = random.Random(seed)  # noqa: S311 - which process to kill is no secret
    while True:
        yield Strike(
            draw.choice(KINDS), draw.choice(list(parties)), draw.uniform(0.1, 2.0), draw.uniform(0.0, 2.0)
        )
