"""Whom the next round of a job is offered to: those that are here, after waiting for the others for a while.

A silo that rejects the job, has yet to decide, or whose budget refused an earlier round of it, is not waited
for; nor is one that sits out after failures (``aggregator.turnout``), which is invited all the same where
without it too few silos or institutions are here. Waits on events only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from aggregator.job_rows import JobRow
from aggregator.latecomers import Latecomers
from aggregator.state import AggregatorState
from policies.institutions import distinct_entities
from policies.planning import silos_needed
from privacy.ids import SiloId

_A_LONG_TIME_S: Final = 3600.0
_NOBODY: Final[frozenset[SiloId]] = frozenset()
"""Silos have changed their minds while others were waited for."""


@dataclass(frozen=True)
class Called:
    """Who is there for a round, who is not, and who sits out."""

    here: frozenset[SiloId]
    left_out: frozenset[SiloId] = frozenset()
    """Silos that would take part, and came too late or not at all."""
    paused: frozenset[SiloId] = frozenset()
    """Silos that are here and sit out. A plan that is refused without them is made with them."""


class Calling:
    """Chooses cohorts for one aggregator."""

    def __init__(self, state: AggregatorState, grace_s: float) -> None:
        self._state = state
        self._grace_s = grace_s
        self._latecomers = Latecomers(state.presence, grace_s)

    def forget(self, job: JobRow) -> None:
        """The job is over."""
        self._latecomers.forget(job.job)
        self._state.turnouts.forget(job.job)

    def start_anew(self) -> None:
        """Go by what is stored: this process takes up the work, for the first time or again."""
        self._latecomers.forget_all()
        self._state.turnouts.forget()

    async def cohort(self, job: JobRow, willing: Collection[SiloId]) -> Called | None:
        """Silos to invite, of those that approve the job: all as soon as they are here and nobody is still to
        answer, or enough of them after the grace period, and a longer one for who came too late before.

        ``None``: ask again, also because another charter has come.
        """
        self._recall(job)
        waiting = _Waiting(self._state, job, willing)
        bell = self._state.bell
        if not await bell.wait_for(waiting.enough, _A_LONG_TIME_S):
            return None
        cohort = await bell.wait_for(waiting.everybody, self._grace_s)
        if not cohort:
            owed = self._latecomers.owed(job.job, waiting.approving()) - waiting.paused
            extra_s = self._latecomers.extra_s(job.job, owed)
            cohort = await bell.wait_for(waiting.nobody_of(owed), extra_s) or waiting.enough()
        if not cohort:
            return None
        expected = frozenset(waiting.approving()) - waiting.paused
        self._latecomers.invited(job.job, expected | cohort, cohort)
        paused = self._state.presence.here(waiting.paused) - cohort
        return Called(cohort, expected - cohort, paused & frozenset(waiting.approving()))

    def _recall(self, job: JobRow) -> None:
        """What an earlier process knew of who came too late."""
        with self._state.store.read() as view:
            turnouts = self._state.turnouts.of(view, job.job)
        in_row = {silo: one.left_out_in_row for silo, one in turnouts.items() if one.left_out_in_row}
        self._latecomers.recall(job.job, in_row)


class _Waiting:
    """The conditions of one wait."""

    def __init__(self, state: AggregatorState, job: JobRow, willing: Collection[SiloId]) -> None:
        self._state = state
        self._job = job
        self._digest = job.spec.digest
        self._willing = willing
        self._needed = silos_needed(job.spec, state.held.policy)
        with state.store.read() as view:
            turnouts = state.turnouts.of(view, job.job)
        self.paused = frozenset(silo for silo, one in turnouts.items() if one.paused_until > job.round)
        """Who sits out the next round."""

    def approving(self) -> tuple[SiloId, ...]:
        """Who would take part, here or not."""
        return self._state.readiness.who(self._digest, self._willing, "approved")

    def enough(self) -> frozenset[SiloId] | None:
        """Who is here, once these are enough."""
        approving = self.approving()
        if len(approving) < self._needed or self._in_vain():
            return _NOBODY
        here = self._state.presence.here(approving)
        fit = here - self.paused
        if len(fit) >= self._needed and self._institutions_of(fit):
            return fit
        return here if len(here) >= self._needed else None

    def everybody(self) -> frozenset[SiloId] | None:
        """Who is here, once nobody else may come."""
        readiness = self._state.readiness
        expected = {silo for silo in self._willing if readiness.may_come(self._digest, silo)} - self.paused
        here = self.enough()
        return here if here is not None and here >= expected else None

    def nobody_of(self, owed: frozenset[SiloId]) -> Callable[[], frozenset[SiloId] | None]:
        """Who is here, once those who are ``owed`` a wait are."""

        def settled() -> frozenset[SiloId] | None:
            here = self.enough()
            return here if here is not None and here >= owed else None

        return settled

    def _in_vain(self) -> bool:
        """Whether another charter has come, or an operator holds the job back."""
        return self._state.charters.coming is not None or self._state.maintenance.holds_back(self._job)

    def _institutions_of(self, silos: Collection[SiloId]) -> bool:
        """Whether they belong to as many institutions as the threat model counts on."""
        spec = self._state.held.policy.model.spec
        if not spec.assume.silos.distinct_legal_entities:
            return True
        return distinct_entities(self._state.held.charter, silos) >= spec.limits.min_silos_open
