"""The turnout of every silo in every job, in the database: restarts and takeovers remember who came.

Written in the transactions that begin and end a round, so it costs none of its own. What is known of a job is
read once, and kept in memory while this process drives the job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace

from sqlalchemy import func, select

from aggregator.job_rows import OPEN_STATES, JobRow
from aggregator.statements import ADD_TURNOUT, SET_TURNOUT
from aggregator.store import Reader, Writer
from aggregator.tables import turnouts
from aggregator.turnout import OUTCOMES_OF_SILOS, Ending, Turnout
from privacy.ids import JobId, PartyId, SiloId
from privacy.plan import RoundPlan


class Turnouts:
    """One aggregator's, of the jobs that it drives."""

    def __init__(self) -> None:
        self._known: dict[JobId, dict[SiloId, Turnout]] = {}

    def of(self, view: Reader, job: JobId) -> Mapping[SiloId, Turnout]:
        """Of each silo that a round of the job has invited or left out."""
        if job not in self._known:
            self._known[job] = turnouts_of(view, job)
        return self._known[job]

    def told(self, view: Reader, job: JobRow) -> dict[str, dict[str, int]]:
        """For whoever may see the job: counts by silo, and until which round one sits out."""
        known = self.of(view, job.job) if job.state in OPEN_STATES else turnouts_of(view, job.job)
        return {silo: one.told for silo, one in sorted(known.items())}

    def began(self, transaction: Writer, plan: RoundPlan, left_out: Collection[SiloId]) -> None:
        """A round begins without these silos, which would take part."""
        before = self.of(transaction, plan.job)
        changed = {silo: before.get(silo, Turnout()).left_behind() for silo in left_out}
        for silo in plan.silos:
            if silo in before and before[silo].left_out_in_row:
                changed[silo] = replace(before[silo], left_out_in_row=0)
        self._keep(transaction, plan.job, changed)

    def ended(
        self, transaction: Writer, plan: RoundPlan, endings: Mapping[SiloId, Ending], *, opened: bool
    ) -> None:
        """A round is over, and this is what it means for each silo of its cohort."""
        before = self.of(transaction, plan.job)
        changed = {
            silo: before.get(silo, Turnout()).ended(ending, plan.round, opened=opened)
            for silo, ending in endings.items()
        }
        self._keep(transaction, plan.job, changed)

    def forget(self, job: JobId | None = None) -> None:
        """Read again what is stored: of one job that is over, or of all when a process takes up its work."""
        if job is None:
            self._known.clear()
        else:
            self._known.pop(job, None)

    def _keep(self, transaction: Writer, job: JobId, changed: Mapping[SiloId, Turnout]) -> None:
        known = self._known[job]
        new = [
            {"job": job, "silo": silo, **asdict(one)} for silo, one in changed.items() if silo not in known
        ]
        old = [
            {"of_job": job, "of_silo": silo, **asdict(one)} for silo, one in changed.items() if silo in known
        ]
        if new:
            transaction.connection.execute(ADD_TURNOUT, new)
        if old:
            transaction.connection.execute(SET_TURNOUT, old)
        known.update(changed)


def totals(view: Reader) -> dict[str, int]:
    """Of all silos in all jobs that are kept, by outcome."""
    columns = [func.coalesce(func.sum(turnouts.c[name]), 0).label(name) for name in OUTCOMES_OF_SILOS]
    return {
        name: int(total) for name, total in view.connection.execute(select(*columns)).mappings().one().items()
    }


def turnouts_of(view: Reader, job: JobId) -> dict[SiloId, Turnout]:
    """As stored, by silo, sorted."""
    query = select(turnouts).where(turnouts.c.job == job).order_by(turnouts.c.silo)
    return {
        SiloId(PartyId(row["silo"])): Turnout(
            **{name: value for name, value in row.items() if name not in ("job", "silo")}
        )
        for row in view.connection.execute(query).mappings()
    }
