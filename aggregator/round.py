"""One round as the aggregator sees it: which event may follow which, in one table. No I/O, no clock.

collecting ── complete / deadline ──► closing ── agreed ──► agreed ── cleared ──► cleared
    │                                    │                     │                     │ recorded
    └──────── give_up ───────────────────┴─────────────────────┴─────────┐           ▼
                                                                         ▼        opening
                                                                      aborted ◄──────┤ published
                                                                                     ▼
                                                                                  published
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from privacy.errors import NotAllowed, OutOfOrder
from privacy.ids import SiloId
from privacy.plan import RoundPlan

Phase = Literal["collecting", "closing", "agreed", "cleared", "opening", "published", "aborted"]
Event = Literal["answer", "close", "agree", "clear", "record", "publish", "give_up"]
Answer = Literal["manifest", "refusal"]

TABLE: Final[Mapping[tuple[Phase, Event], Phase]] = MappingProxyType(
    {
        ("collecting", "answer"): "collecting",
        ("collecting", "close"): "closing",
        ("closing", "answer"): "closing",
        ("agreed", "answer"): "agreed",
        ("cleared", "answer"): "cleared",
        ("closing", "agree"): "agreed",
        ("agreed", "clear"): "cleared",
        ("cleared", "record"): "opening",
        ("opening", "publish"): "published",
        ("collecting", "give_up"): "aborted",
        ("closing", "give_up"): "aborted",
        ("agreed", "give_up"): "aborted",
        ("cleared", "give_up"): "aborted",
        ("opening", "give_up"): "aborted",
    }
)
"""A silo answers the servers first and us last, so its answer may come late; the servers alone decide who
is in the sum, and a late manifest completes the evidence.

What is not here cannot happen: nothing leaves ``published`` or ``aborted``, nothing skips ``clear``."""


def follow(phase: Phase, event: Event) -> Phase:
    """The phase after ``event``.

    Raises:
        OutOfOrder: the table has no such step.
    """
    after = TABLE.get((phase, event))
    if after is None:
        raise OutOfOrder(f"round: {event} cannot follow in phase {phase}")
    return after


@dataclass
class Round:
    """The open round: who was invited, who has answered how, where it stands."""

    plan: RoundPlan
    phase: Phase = "collecting"
    answers: dict[SiloId, Answer] = field(default_factory=dict)

    def step(self, event: Event) -> Phase:
        """Move on, if the table says so.

        Raises:
            OutOfOrder: it does not.
        """
        self.phase = follow(self.phase, event)
        return self.phase

    def check_answer(self, silo: SiloId, answer: Answer) -> None:
        """Whether this silo may still answer so.

        Raises:
            NotAllowed: it was not invited. OutOfOrder: too late, or it has answered otherwise.
        """
        if silo not in self.plan.silos:
            raise NotAllowed(f"silo {silo}: it is not in this round's cohort")
        follow(self.phase, "answer")
        if self.answers.get(silo, answer) != answer:
            raise OutOfOrder(f"silo {silo}: it has sent a {self.answers[silo]} in this round")

    def answered(self, silo: SiloId, answer: Answer) -> None:
        """Note an answer whose checks have passed."""
        self.check_answer(silo, answer)
        self.answers[silo] = answer

    @property
    def complete(self) -> bool:
        """Every invited silo has answered: nothing more can come."""
        return len(self.answers) == len(self.plan.cohort)

    @property
    def hopeless(self) -> bool:
        """So many silos have refused that the minimum is out of reach."""
        refused = sum(1 for answer in self.answers.values() if answer == "refusal")
        return len(self.plan.cohort) - refused < self.plan.min_survivors
