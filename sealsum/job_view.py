"""What the aggregator reports of a job. A report, not evidence: nothing is decided by it.

Evidence is what the parties signed, and an auditor's verifier judges it.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from privacy.ids import HexDigest

ENDED: Final = frozenset({"finished", "failed"})


class _Report(BaseModel):
    """Read leniently: a later aggregator may say more, and nothing is decided by it."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RefusalView(_Report):
    """A silo that took no part in a round, and why."""

    round: int
    silo: str
    rule: str
    sentence: str


class RoundView(_Report):
    """A round that ended."""

    round: int
    context: HexDigest
    outcome: str
    reason: str
    survivors: tuple[str, ...]
    further: dict[str, tuple[float, ...]] = {}
    """What the job's further vectors opened to, by name."""
    duration_ms: float | None = None
    """``None`` for a round that a restart cut short."""


class AnswerView(_Report):
    """What a silo last said of the job; of its own people it says nothing."""

    decision: str
    """``approved``, ``rejected``, ``waiting`` (for its people) or ``unanswered``."""
    rule: str = ""


class ReadinessView(_Report):
    """Which silos will take part; a job begins when enough have approved."""

    needed: int
    silos: dict[str, AnswerView] = {}

    @property
    def sentence(self) -> str:
        """For people."""
        said = {
            decision: [name for name, answer in sorted(self.silos.items()) if answer.decision == decision]
            for decision in ("approved", "rejected", "waiting", "unanswered")
        }
        told = "; ".join(f"{decision}: {', '.join(names)}" for decision, names in said.items() if names)
        return f"{len(said['approved'])} of {self.needed} approvals needed ({told or 'no silos'})"


class TurnoutView(_Report):
    """In how many rounds of the job a silo was, and what came of it."""

    invited: int
    summed: int
    """It is in the sum that was opened."""
    refused: int
    failed: int
    """It neither answered in time nor said no for a reason of its own."""
    left_out: int
    """The round began without it, because it was not there in time."""
    paused_until: int = 0
    """The round up to which it sits out after failures, unless it is needed."""

    def sentence(self, next_round: int) -> str:
        """For people."""
        counts = (("refused", self.refused), ("failed", self.failed), ("left out", self.left_out))
        more = "".join(f", {count} {word}" for word, count in counts if count)
        pause = f"; sits out up to round {self.paused_until}" if self.paused_until >= next_round else ""
        return f"in the sum of {self.summed} of {self.invited} rounds that invited it{more}{pause}"


class JobView(_Report):
    """Where a job stands; ``version`` grows with every change."""

    version: int
    job: str
    state: Literal["waiting", "running", "finished", "failed"]
    round: int
    rounds: int
    reason: str = ""
    openings: int
    refusals: tuple[RefusalView, ...] = ()
    history: tuple[RoundView, ...] = ()
    model: HexDigest
    """The latest published model."""
    initial_model: HexDigest
    readiness: ReadinessView | None = None
    """``None`` once the job is over."""
    turnout: dict[str, TurnoutView] = {}
    """By silo."""

    @property
    def last_round(self) -> int:
        """Number of the last round that ended; 0 if none has."""
        return self.history[-1].round if self.history else 0

    def following(self, earlier: JobView) -> JobView:
        """This view with the rounds that ``earlier`` tells, which the aggregator may have left out here."""
        known = earlier.last_round
        old, new = earlier.refusals, self.refusals
        return self.model_copy(
            update={
                "history": (*earlier.history, *(one for one in self.history if one.round > known)),
                "refusals": (
                    *(one for one in old if one.round <= known),
                    *(one for one in new if one.round > known),
                ),
            }
        )
