"""A round that this silo has taken part in: what is left to carry, and to wait for."""

from __future__ import annotations

from dataclasses import dataclass

from privacy.plan import RoundPlan
from silo_agent.outbox import Stored
from silo_agent.schemes.half import SchemeHalf


@dataclass(frozen=True)
class Attended:
    """A round whose contribution is on disk and whose charge is settled."""

    plan: RoundPlan
    dataset: str
    stored: Stored
    half: SchemeHalf
    train_ms: float
    own_ms: float
    """Everything of the round so far that is this silo's work beyond training."""


def names_of(plan: RoundPlan) -> dict[str, str | int]:
    """What every line about a round says."""
    return {"job": plan.job, "round": plan.round, "context": plan.context}
