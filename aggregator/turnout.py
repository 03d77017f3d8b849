"""What became of one silo in a job's rounds so far, and how long it sits out after failures. Pure.

A round is *failed* by a silo that was invited, let the round begin, and neither answered in time nor said no
for a reason of its own; a refusal that says that its machine failed counts as failing. Refusals by budget, by
a threat model or by people are decisions, and nobody sits out for one.

After f strikes in a row a silo sits out min(2^(f − 1) − 1, ``PAUSE_MAX``) rounds: none after the first, then
1, 3, 7 and at most 8. A failure that cost everybody the round is two strikes. One round in the sum ends the
row. It is never out for good: the pause ends by itself, and gives way where a round needs the silo.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from privacy.ids import SiloId

PAUSE_MAX: Final = 8
"""Longest pause, in rounds."""
_STRIKES_MAX: Final = 16
_TECHNICAL: Final = "silo."
"""Refusals of this name say that the silo failed, not that it would not (silo_agent/refusals.py)."""

OUTCOMES_OF_SILOS: Final = ("invited", "summed", "refused", "failed", "left_out")
"""What is counted of each silo."""
Ending = Literal["summed", "refused", "failed", "spared"]
"""``spared``: the round ended by no doing of this silo."""


@dataclass(frozen=True)
class Turnout:
    """Counts of rounds of one job, and of one silo."""

    invited: int = 0
    """Rounds that are over."""
    summed: int = 0
    """It is in the sum that was opened."""
    refused: int = 0
    failed: int = 0
    left_out: int = 0
    """It would take part, and the round began without it, because it was not there in time."""
    left_out_in_row: int = 0
    strikes: int = 0
    paused_until: int = 0
    """Rounds up to this number begin without it."""

    @property
    def told(self) -> dict[str, int]:
        """What is shown of it."""
        return {name: getattr(self, name) for name in (*OUTCOMES_OF_SILOS, "paused_until")}

    def left_behind(self) -> Turnout:
        """A round begins without it."""
        return replace(self, left_out=self.left_out + 1, left_out_in_row=self.left_out_in_row + 1)

    def ended(self, ending: Ending, number: int, *, opened: bool) -> Turnout:
        """Round ``number``, which invited it, is over, with or without a sum."""
        after = replace(self, invited=self.invited + 1)
        if ending == "summed":
            return replace(after, summed=self.summed + 1, strikes=0, paused_until=0)
        if ending == "refused":
            return replace(after, refused=self.refused + 1)
        if ending == "spared":
            return after
        strikes = min(_STRIKES_MAX, self.strikes + (1 if opened else 2))
        return replace(after, failed=self.failed + 1, strikes=strikes, paused_until=number + pause(strikes))


def pause(strikes: int) -> int:
    """For how many rounds a silo sits out."""
    return min(PAUSE_MAX, (1 << (strikes - 1)) - 1)


def endings(
    cohort: Collection[SiloId],
    *,
    survivors: Collection[SiloId],
    answered: Collection[SiloId],
    refusals: dict[SiloId, str],
    blamed: bool,
) -> dict[SiloId, Ending]:
    """What a round's end means for each silo that it invited.

    Args:
        answered: whose manifest came; such a silo did its part, whatever became of the round.
        refusals: rule of each refusal.
        blamed: whether the round went on for so long that silence tells of the silo.
    """

    def ending(silo: SiloId) -> Ending:
        if silo in survivors:
            return "summed"
        if silo in refusals:
            return "failed" if refusals[silo].startswith(_TECHNICAL) else "refused"
        return "failed" if blamed and silo not in answered else "spared"

    return {silo: ending(silo) for silo in cohort}
