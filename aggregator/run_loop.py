"""The loop that drives jobs, one after another: wait for silos, run a round, until each job has ended.

Waits on events only. After a restart it first goes on with what was left open: a round before its opening
with the same plan, cohort and answers, a round whose opening is on record by opening it for the very same
survivors. What cannot go on ends with its reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Literal

from sqlalchemy import select, update
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from aggregator.calling import Called, Calling
from aggregator.charter_change import enter_charter
from aggregator.ending import abort, fail_job
from aggregator.job_rows import OPEN_STATES, JobRow, budget_refusers, job_row, open_job_digests, open_jobs
from aggregator.not_now import BlobsAway, DatabaseAway, StorageFull
from aggregator.readiness import Judged
from aggregator.resuming import left_open, plan_of
from aggregator.round import Round
from aggregator.round_flow import Faults, RoundFlow
from aggregator.state import AggregatorState
from aggregator.tables import rounds
from policies.findings import PolicyRefusal
from policies.planning import silos_needed
from privacy.ids import Context, Digest, PartyId, SiloId

RESTARTED = "aggregator restarted"
_A_LONG_TIME_S = 3600.0
_SCRUB_PATIENCE_S = 10.0
_STORAGE_PAUSE_S = 5.0
_log = logging.getLogger("sealsum.aggregator")


class RunLoop:
    """Drives the jobs of one aggregator."""

    def __init__(
        self,
        state: AggregatorState,
        flow: RoundFlow,
        grace_s: float,
        aborts_max: int,
        database_wait_s: float = 900.0,
    ) -> None:
        self._state = state
        self._flow = flow
        self._aborts_max = aborts_max
        self._database_wait_s = database_wait_s
        self._calling = Calling(state, grace_s)
        self._vetted: set[str] = set()
        self._scrubbing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the process drains. Where the database or the store of parts and models goes away,
        or is full, what was going on is taken up once it is back, as after a restart; until then nothing is
        decided.

        Raises:
            DatabaseAway: it has been away for longer than the operator allows.
        """
        with self._state.store.write() as transaction:
            transaction.record("started", party=self._state.me, charter=self._state.held.charter.digest)
        try:
            while not self._state.bell.silent:
                try:
                    await self.recover()
                    await self._work()
                except (StorageFull, BlobsAway) as away:
                    _log.error("storage_away", extra={"reason": str(away)})
                    await self._state.bell.wait_for(lambda: None, _STORAGE_PAUSE_S)
                except DatabaseAway as away:
                    _log.error("database_away", extra={"reason": str(away)})
                    await self._database_back()
        finally:
            if self._scrubbing is not None:
                self._scrubbing.add_done_callback(_tell_failure)
                try:
                    await asyncio.wait({self._scrubbing}, timeout=_SCRUB_PATIENCE_S)
                finally:  # also where the patience of whoever drains us ends first
                    self._scrubbing.cancel()

    async def _work(self) -> None:
        while not self._state.bell.silent:
            if self._state.charters.coming is not None:
                enter_charter(self._state)
                self._vetted.clear()
            job = await self._next_job()
            if job is not None:
                await self._advance(job)

    async def _database_back(self) -> None:
        bell = self._state.bell
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, DatabaseAway) and not bell.silent),
            wait=wait_random_exponential(multiplier=0.1, max=5.0),
            stop=stop_after_delay(self._database_wait_s),
            reraise=True,
        )
        try:
            await retrying(self._look_at_database)
        except DatabaseAway:
            if not bell.silent:
                raise
        else:
            _log.info("database_back")

    async def _look_at_database(self) -> None:
        self._state.store.assert_here()
        with self._state.store.read() as view:
            self._state.witnesses.load(view.connection)

    async def recover(self) -> None:
        """Go on with the round that a crash left open."""
        self._calling.start_anew()
        with self._state.store.read() as view:
            left = left_open(view, self._state.me)
        for one in left:
            opening = one.phase == "opening"
            try:
                if opening:
                    await self._flow.resume(Round(one.plan, "opening"), time.monotonic() - one.elapsed_s)
                else:
                    await self._flow.go_on(one)
            except Faults as fault:
                round_ = Round(one.plan, "opening" if opening else "collecting")
                reason = f"{RESTARTED}; {fault}"
                abort(self._state, round_, reason, aborts_max=self._aborts_max, blamed=opening)
            if not self._state.bell.silent:
                self._state.coming_back.discard(one.plan.context)
        self._forget_ended_jobs()
        self._scrub_soon()

    def _forget_ended_jobs(self) -> None:
        """What a crash kept of jobs that are over."""
        with self._state.store.read() as view:
            going_on = open_job_digests(view)
        for digest in self._state.optimizers.jobs():
            if digest not in going_on:
                self._state.optimizers.forget_job(digest)

    async def _next_job(self) -> JobRow | None:
        """The first job, in order of submission, that can go on, or is over; those that wait hold up none."""

        def due() -> JobRow | Literal[False] | None:
            if self._state.charters.coming is not None:
                return False
            with self._state.store.read() as view:
                return next((job for _, job in open_jobs(view) if self._is_due(job)), None)

        seconds = min(_A_LONG_TIME_S, self._state.readiness.seconds_left())
        found: JobRow | Literal[False] | None = await self._state.bell.wait_for(due, seconds)
        return found or None

    def _is_due(self, job: JobRow) -> bool:
        if job.job not in self._vetted:
            return True
        verdict = self._judged(job).verdict
        # What is held back begins no round; whose time is up ends all the same.
        return verdict == "over" or (verdict == "go" and not self._state.maintenance.holds_back(job))

    def _judged(self, job: JobRow) -> Judged:
        """Whether silos let it go on; those whose budget refused an earlier round of it do not count."""
        needed = silos_needed(job.spec, self._state.held.policy)
        refused = self._refused_on_budget(job)
        willing = self._willing(refused)
        if len(willing) < needed:
            names = ", ".join(sorted(refused))
            return Judged("over", f"too few silos: {needed} needed; refused on budget: {names}")
        return self._state.readiness.judge(job.spec, willing, needed)

    def _refused_on_budget(self, job: JobRow) -> frozenset[PartyId]:
        if job.round == 0:
            return frozenset()
        with self._state.store.read() as view:
            return budget_refusers(view, job.job)

    def _willing(self, refused: frozenset[PartyId]) -> list[SiloId]:
        return [silo for silo in self._state.held.charter.silos if silo not in refused]

    async def _advance(self, job: JobRow) -> None:
        """Judge the job as a whole; once enough silos approve, wait for a cohort and run one round."""
        try:
            if job.job not in self._vetted:
                await self._flow.admit(job, self._state.held.charter.silos)
                self._vetted.add(job.job)
                return
            judged = self._judged(job)
            if judged.verdict == "over":
                fail_job(self._state, job, judged.why)
                return
            called = await self._calling.cohort(job, self._willing(self._refused_on_budget(job)))
            if called is not None:
                await self._run(job, called)
                self._scrub_soon()
        except Faults as fault:
            # No round has begun: the job as such is refused, by our gate or by a charter that has changed.
            fail_job(self._state, job, str(fault))
        with self._state.store.read() as view:
            after = job_row(view, job.job)
        if after.state not in OPEN_STATES:
            self._calling.forget(job)
        _log.info("job", extra={"job": after.job, "state": after.state, "round": after.round})

    async def _run(self, job: JobRow, called: Called) -> None:
        """One round with those that are here; also with those that sit out, where no plan holds without."""
        try:
            await self._flow.run(job, called.here, called.left_out)
        except PolicyRefusal:
            if not called.paused:
                raise
            await self._flow.run(job, called.here | called.paused, called.left_out)

    def _scrub_soon(self) -> None:
        """Have servers delete the shares of ended rounds, beside the next round."""
        if self._scrubbing is not None and self._scrubbing.done():
            self._scrubbing.result()  # our own failure there must not pass unseen
            self._scrubbing = None
        if self._scrubbing is None:
            self._scrubbing = asyncio.create_task(self._scrub())

    async def _scrub(self) -> None:
        query = select(rounds.c.ctx).where(
            rounds.c.scrubbed.is_(False), rounds.c.phase.in_(("published", "aborted"))
        )
        while True:
            with self._state.store.read() as view:
                pending = [Context(Digest(row.ctx)) for row in view.connection.execute(query)]
            done = 0
            for ctx in pending:
                with self._state.store.read() as view:
                    result = view.message(ctx, "result", self._state.me)
                    plan = plan_of(view, ctx, self._state.me)
                if result is not None and await self._flow.finish(plan, result):
                    with self._state.store.write() as transaction:
                        transaction.connection.execute(
                            update(rounds).where(rounds.c.ctx == ctx).values(scrubbed=True)
                        )
                    done += 1
            if done == 0:
                return  # nothing left, or servers that do not answer now: after the next round again


def _tell_failure(scrubbing: asyncio.Task[None]) -> None:
    """Nobody asks for its result any more, and the next process scrubs what it left: its failure is told."""
    if not scrubbing.cancelled():
        error = scrubbing.exception()
        if error is not None:
            _log.error("scrub_failed", extra={"kind": type(error).__name__})
