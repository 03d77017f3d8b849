"""One round from plan to result: what is sent, awaited, recorded and opened, in which order.

The order is the round's table (``aggregator/round.py``); judgement is the gates'; opening is
``aggregator/opening.py``'s. This module only carries things between them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from aggregator.ending import abort, publish
from aggregator.job_rows import JobRow, change_job
from aggregator.opening import SumImplausible, open_sum
from aggregator.peers import ServerRefused, ShareServers
from aggregator.planning import SESSION_BYTES, plan_round
from aggregator.received import open_from, open_of_servers, open_offer
from aggregator.round import Event, Round
from aggregator.state import AggregatorState, Noted, OpenRound
from policies.findings import PolicyRefusal
from policies.gates import AdmittedPlan, ClearedCohort, admit_plan, admit_update, clear_cohort
from privacy.errors import PeerFault, Unprocessable
from privacy.ids import Context, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.update import digest_under
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import AcceptedSet, OpeningShare, RoundOffer, ShareManifest, SurvivorSet

R = TypeVar("R")
STOPPING = "the aggregator is shutting down"
Faults = (PeerFault, PolicyRefusal, SumImplausible)
"""What ends a round with a reason. Anything else is our own failure and ends the process."""


class RoundFlow:
    """Runs rounds for one aggregator."""

    def __init__(self, state: AggregatorState, servers: ShareServers, aborts_max: int) -> None:
        self._state = state
        self._servers = servers
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
        head = self._state.store.log.head
        offer = self._state.sign(
            RoundOffer(plan=plan, job=job.envelope, log_head=head), "offer", plan.context
        )
        verified_offer, verified_job = open_offer(held.charter, offer)
        # ε is computed in here, so it runs in a thread; its result is cached for the job's next rounds.
        admitted = await asyncio.to_thread(
            admit_plan, [held.policy], verified_offer, verified_job, held.charter
        )
        return admitted, offer

    async def run(self, job: JobRow, silos: Collection[SiloId]) -> None:
        """One round: it ends published or aborted, with a signed result either way.

        Raises:
            PolicyRefusal: our own gate refuses the plan; no round has begun.
        """
        admitted, offer = await self.admit(job, silos)
        plan = admitted.plan
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
            change_job(transaction, plan.job, state="running", round=plan.round)
        current = OpenRound(Round(plan), admitted, offer)
        try:
            await self._from_servers(plan, lambda server: self._servers.offer(server, offer))
            self._state.current = current
            self._state.bell.ring()
            await self._collect(current.round)
            if self._state.bell.silent:
                abort(
                    self._state,
                    current.round,
                    STOPPING,
                    answers=current,
                    aborts_max=self._aborts_max,
                    blamed=False,
                )
                return
            cleared, shares = await self._close(current)
            await self.open_and_publish(current.round, cleared, shares, started)
        except Faults as fault:
            abort(
                self._state,
                current.round,
                str(fault),
                answers=current,
                aborts_max=self._aborts_max,
                duration_ms=_milliseconds(started),
            )
        finally:
            self._state.current = None
            self._state.bell.ring()

    async def open_and_publish(
        self,
        round_: Round,
        cleared: ClearedCohort,
        shares: Sequence[Verified[OpeningShare]],
        started: float,
    ) -> None:
        """Open the sum whose opening is on record, and publish the model.

        Raises:
            PeerFault, SumImplausible: see ``open_sum``.
        """
        plan = round_.plan

        async def fetch(server: ServerId, index: int) -> bytes:
            return await self._servers.opening_part(server, plan.context, index)

        with self._state.models.draft() as draft:
            await open_sum(cleared, shares, fetch, self._state.models.path(plan.model), draft.write)
            model_out = await asyncio.to_thread(
                draft.digest, lambda chunks: digest_under(plan.architecture, chunks)
            )
            await asyncio.to_thread(draft.commit, model_out)
        publish(self._state, round_, cleared.survivors, model_out, _milliseconds(started))

    async def finish(self, ctx: Context, result: Envelope) -> bool:
        """Tell every server that the round is over; whether all have scrubbed their shares."""
        servers = self._state.held.charter.share_servers
        told = await asyncio.gather(
            *(self._servers.finish(server, ctx, result) for server in servers), return_exceptions=True
        )
        return all(_has_scrubbed(outcome) for outcome in told)

    async def _collect(self, round_: Round) -> None:
        """Wait until every silo has answered, the minimum is out of reach, or the (monotonic) time is up.

        Raises:
            Unprocessable: so many silos have refused that no sum can be opened.
        """

        def settled() -> bool | None:
            return True if round_.complete or round_.hopeless else None

        await self._state.bell.wait_for(settled, round_.plan.deadline_s)
        if round_.hopeless:
            refused = ", ".join(
                silo for silo, answer in sorted(round_.answers.items()) if answer == "refusal"
            )
            raise Unprocessable(
                f"cohort: {round_.plan.min_survivors} silos are needed; these refused: {refused}"
            )

    async def _close(self, current: OpenRound) -> tuple[ClearedCohort, tuple[Verified[OpeningShare], ...]]:
        """From the servers' frozen sets to their shares of the one sum; the opening is recorded last."""
        plan, ctx, charter = current.round.plan, current.ctx, self._state.held.charter
        current.round.step("close")
        sets = await self._from_servers(plan, lambda server: self._servers.close(server, ctx))
        open_of_servers(charter, plan, sets, AcceptedSet, "accepted")
        signed = await self._from_servers(plan, lambda server: self._servers.agree(server, ctx, sets))
        survivors = open_of_servers(charter, plan, signed, SurvivorSet, "survivors")
        current.round.step("agree")
        with self._state.store.read() as view:
            opened = view.opening(ctx) is not None
        cleared = clear_cohort(
            current.admitted, survivors, charter, self._state.held.policy, opened_before=opened
        )
        await self._complete_manifests(current, survivors[0].message)
        self._keep(current, "clear", [*sets, *signed], "cohort_cleared", cleared)
        answers = await self._from_servers(plan, lambda server: self._servers.release(server, ctx, signed))
        shares = open_of_servers(charter, plan, answers, OpeningShare, "opening")
        # On disk before anything is opened: whatever happens from here on, no second opening.
        self._keep(current, "record", answers, "sum_opened", cleared)
        return cleared, shares

    async def _complete_manifests(self, current: OpenRound, agreed: SurvivorSet) -> None:
        """Hold each survivor's manifest as the servers accepted it, before its share can be in a sum.

        A silo answers the servers first and us last. One that crashed in between, or showed us another
        manifest, would otherwise leave evidence that never verifies.

        Raises:
            Unprocessable, NotAllowed, SignatureRejected, MalformedMessage, PolicyRefusal: the server
                shows another one, or one that does not hold.
        """
        plan, charter = current.round.plan, self._state.held.charter
        first = plan.servers[0].server
        for silo, digest in zip(agreed.survivors, agreed.manifests, strict=True):
            noted = current.noted.get(("manifest", silo))
            if noted is not None and noted.envelope.body_digest == digest:
                continue
            envelope = await self._servers.manifest(first, plan.context, silo)
            manifest = open_from(charter, [silo], envelope, ShareManifest, "manifest", plan.context)
            if envelope.body_digest != digest:
                raise Unprocessable(f"manifest of {silo}: {first} shows another one than it accepted")
            admit_update(current.admitted, manifest)
            current.noted["manifest", silo] = Noted(silo, envelope, {"manifest": digest})

    def _keep(
        self,
        current: OpenRound,
        event: Event,
        envelopes: Sequence[Envelope],
        kind: str,
        cleared: ClearedCohort,
    ) -> None:
        """Servers' messages, the phase they lead to and its log entry, in one transaction."""
        ctx = current.ctx
        phase = current.round.step(event)
        with self._state.store.write() as transaction:
            current.store_answers(transaction)
            for envelope in envelopes:
                transaction.add_message(ctx, envelope.sender, envelope)
            if event == "record":
                transaction.add_opening(ctx, cleared.survivors_digest)
            transaction.set_phase(ctx, phase)
            transaction.record(
                kind, context=ctx, survivors=list(cleared.survivors), digest=cleared.survivors_digest
            )

    async def _from_servers(self, plan: RoundPlan, call: Callable[[ServerId], Awaitable[R]]) -> list[R]:
        """The same call to all servers of the plan side by side, answers in the plan's order."""
        return list(await asyncio.gather(*(call(slot.server) for slot in plan.servers)))


def _milliseconds(started: float) -> int:
    return round(1000 * (time.monotonic() - started))


def _has_scrubbed(outcome: BaseException | None) -> bool:
    """Whether a server's answer to ``finish`` means that it holds nothing of the round."""
    if outcome is None:
        return True
    if not isinstance(outcome, PeerFault):
        raise outcome
    # A server that never admitted the round has nothing to delete.
    return isinstance(outcome, ServerRefused) and outcome.refused_status == 404
