"""One round from plan to result: what is sent, awaited, recorded and opened, in which order.

The order is the round's table (``aggregator/round.py``); judgement is the gates'; what is exchanged until a
sum may be opened is the scheme's (``aggregator/schemes``); opening is ``aggregator/opening.py``'s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping

from aggregator.blob_store import Blob
from aggregator.charter_change import leave_out_revoked
from aggregator.desk import Desk
from aggregator.desk_rows import DeskJournal
from aggregator.ending import abort, publish
from aggregator.job_rows import JobRow, change_job
from aggregator.opening import SumImplausible, open_sum
from aggregator.opening_further import open_further
from aggregator.received import open_offer
from aggregator.resuming import LeftOpen, reopen
from aggregator.round import Round
from aggregator.schemes.flow import OpenedSum, SchemeFlow, Stopping
from aggregator.state import AggregatorState, OpenRound
from policies.findings import PolicyRefusal
from policies.gates import AdmittedPlan, admit_plan
from policies.planning import SESSION_BYTES, plan_round
from privacy.errors import PeerFault
from privacy.ids import SiloId
from privacy.plan import RoundPlan, SchemeName
from privacy.update import digest_under
from privacy.wire.envelope import Envelope
from privacy.wire.messages import RoundOffer

Faults = (PeerFault, PolicyRefusal, SumImplausible)
"""What ends a round with a reason. Anything else is our own failure and ends the process."""
_log = logging.getLogger("sealsum.aggregator")


class RoundFlow:
    """Runs rounds for one aggregator."""

    def __init__(
        self, state: AggregatorState, schemes: Mapping[SchemeName, SchemeFlow], aborts_max: int
    ) -> None:
        self._state = state
        self._schemes = schemes
        self._aborts_max = aborts_max

    async def admit(self, job: JobRow, silos: Collection[SiloId]) -> tuple[AdmittedPlan, Envelope]:
        """Plan the job's next round and pass it through our own plan gate.

        Raises:
            PolicyRefusal: with every finding.
        """
        held = self._state.held
        plan = plan_round(
            job.spec,
            held.charter,
            held.policy,
            silos=silos,
            number=job.round + 1,
            model=job.model,
            session=os.urandom(SESSION_BYTES),
        )
        with self._state.store.read() as view:
            log = self._state.witnesses.offer(view.connection)
        offer = self._state.sign(RoundOffer(plan=plan, job=job.envelope, log=log), "offer", plan.context)
        verified_offer, verified_job = open_offer(held.charter, offer)
        # ε is computed in here, so it runs in a thread; its result is cached for the job's next rounds.
        admitted = await asyncio.to_thread(
            admit_plan, [held.policy], verified_offer, verified_job, held.charter
        )
        return admitted, offer

    async def run(self, job: JobRow, silos: Collection[SiloId], left_out: Collection[SiloId] = ()) -> None:
        """One round: it ends published or aborted, with a signed result either way, unless the process ends.

        Args:
            left_out: silos that would take part, and are not there in time.

        Raises:
            PolicyRefusal: our own gate refuses the plan; no round has begun.
        """
        admitted, offer = await self.admit(job, silos)
        if self._state.charters.coming is not None:
            return  # taken meanwhile: this plan is the earlier charter's, and nobody has seen it
        plan = admitted.plan
        scheme = self._schemes[plan.scheme]
        started = time.monotonic()
        with self._state.store.write() as transaction:
            transaction.add_round(plan.context, plan.job, plan.round, "collecting")
            transaction.add_message(plan.context, self._state.me, offer)
            transaction.record(
                "round_offered",
                context=plan.context,
                job=plan.job,
                round=plan.round,
                cohort=list(plan.silos),
                tolerated=[finding.rule for finding in admitted.tolerated],
            )
            self._state.turnouts.began(transaction, plan, left_out)
            change_job(transaction, plan.job, state="running", round=plan.round)
            self._state.witnesses.offered(transaction)
        desk = Desk(scheme.steps, DeskJournal(self._state.store, plan.context, scheme.unkept))
        await self._play(OpenRound(Round(plan), admitted, offer, desk), started, resumed=False)

    async def go_on(self, left: LeftOpen) -> None:
        """Take up a round whose opening is not on record, with the same cohort; it ends as ``run`` says.

        Raises:
            PeerFault, PolicyRefusal: under the charter in force now it would not be admitted.
        """
        current = await asyncio.to_thread(reopen, self._state, self._schemes, left)
        _log.info("round_taken_up", extra={"context": current.ctx, "phase": left.phase})
        await self._play(current, time.monotonic() - left.elapsed_s, resumed=True)

    async def _play(self, current: OpenRound, started: float, *, resumed: bool) -> None:
        scheme = self._schemes[current.round.plan.scheme]
        self._state.coming_back.add(current.ctx)
        try:
            await scheme.announce(current)
            if resumed:
                await scheme.recall(current)
            self._state.current = current
            leave_out_revoked(self._state)
            self._state.bell.ring()
            opened = await scheme.open(current)
            await self.open_and_publish(current.round, opened, started)
            self._state.coming_back.discard(current.ctx)
        except Stopping:
            # Its answers stay where they are, and the next process goes on with it.
            _log.info("round_left_open", extra={"context": current.ctx})
        except Faults as fault:
            abort(
                self._state,
                current.round,
                str(fault),
                answers=current,
                aborts_max=self._aborts_max,
                duration_ms=_milliseconds(started),
            )
            self._state.coming_back.discard(current.ctx)
        finally:
            self._state.current = None
            self._state.bell.ring()

    async def open_and_publish(self, round_: Round, opened: OpenedSum, started: float) -> None:
        """Open the sum whose opening is on record, and publish the model.

        Raises:
            PeerFault, SumImplausible: see ``open_sum``.
        """
        plan = round_.plan
        first = opened.cleared.admitted.job.initial_model
        memories = self._state.optimizers
        with self._state.models.draft() as draft, memories.of_round(plan, first) as memory:
            model_in = Blob(self._state.models, (plan.model,))
            further = await open_further(opened.cleared, opened.total)
            since = Blob(self._state.models, (first,))
            await open_sum(opened.cleared, opened.total, model_in, draft.write, memory, further, since)
            model_out = await asyncio.to_thread(
                draft.digest, lambda chunks: digest_under(plan.architecture, chunks)
            )
            await asyncio.to_thread(draft.commit, model_out)
            await asyncio.to_thread(memory.keep, model_out)
        survivors = opened.cleared.survivors
        publish(self._state, round_, survivors, model_out, further, _milliseconds(started))
        if model_out != plan.model:
            await asyncio.to_thread(memories.forget, plan.job_digest, plan.model)

    async def resume(self, round_: Round, started: float) -> None:
        """Publish a round whose opening is on record and whose model is not.

        Raises:
            PeerFault, PolicyRefusal, SumImplausible: it cannot be opened any more.
        """
        opened = await self._schemes[round_.plan.scheme].resume(round_)
        await self.open_and_publish(round_, opened, started)

    async def finish(self, plan: RoundPlan, result: Envelope) -> bool:
        """Have everything deleted that could still open something of an ended round; whether all is."""
        return await self._schemes[plan.scheme].finish(plan.context, result)


def _milliseconds(started: float) -> int:
    return round(1000 * (time.monotonic() - started))
