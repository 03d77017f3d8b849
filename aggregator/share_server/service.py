"""What a share server does with each call of a round, by its own judgement. Knows no HTTP.

It believes neither the aggregator nor the other servers: it admits each plan by its own gate, checks
the survivors itself, and releases one aggregate share per context, ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aggregator.blob_store import Blobs
from aggregator.parts import part_name
from aggregator.received import manifest_kind, open_from, open_of_servers, open_offer
from aggregator.share_server.agreeing import accepted_everywhere, valid_everywhere
from aggregator.share_server.charter_intake import CharterIntake
from aggregator.share_server.checking import Checking
from aggregator.share_server.phases import Call, follow
from aggregator.share_server.proving import ProofIntake
from aggregator.share_server.receiving import ShareIntake
from aggregator.share_server.rounds import (
    AdmittedRounds,
    bytes_held,
    bytes_needed,
    last_round,
    scrub_seeds,
)
from aggregator.share_server.state import ShareServerState
from aggregator.share_server.summing import sum_share
from aggregator.share_server.sweeping import sweep
from aggregator.share_server.tossing import Tossing, scrub_coins
from aggregator.store import Store, Writer
from aggregator.succession import Succession, assert_none_revoked, revoked_silos
from policies.gates import admit_plan, check_survivors, clear_cohort
from privacy.errors import Conflict, OutOfOrder, TooLarge, Unprocessable
from privacy.ids import Context, SiloId
from privacy.keystore import Identity
from privacy.roster import Charter
from privacy.wire.envelope import Envelope
from privacy.wire.messages import (
    AcceptedSet,
    OpeningShare,
    RoundResult,
    SurvivorSet,
    survivors_digest,
)


class ShareServer:
    """One share server of one federation."""

    def __init__(
        self,
        identity: Identity,
        charters: Succession,
        store: Store,
        parts: Blobs,
        openings: Blobs,
        storage_bytes_max: int,
    ) -> None:
        rounds = AdmittedRounds(store, charters)
        self._state = ShareServerState(identity, charters, store, parts, openings, rounds)
        self.charters = CharterIntake(self._state)
        self._storage_bytes_max = storage_bytes_max
        self.intake = ShareIntake(self._state)
        self.tossing = Tossing(self._state)
        self.proofs = ProofIntake(self._state)
        self.checking = Checking(self._state)
        sweep(self._state)

    @property
    def at_the_door(self) -> Charter:
        """The roster that callers are looked up in."""
        return self._state.charters.at_the_door

    async def admit(self, envelope: Envelope) -> bool:
        """Admit an offered round; True if it is new. Checks, in this order:

        (1) the aggregator signed the offer and a researcher its job, and the context is the plan's digest;
        (2) this server's own plan gate admits it under the charter's threat model; (3) we are in it;
        (4) the very same offer came before, or (5) the job's round number is higher than any seen here;
        (6) there is room for all its shares.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: (1). PolicyRefusal: (2). Unprocessable: (3).
            Conflict: (4), another offer. OutOfOrder: (5). TooLarge: (6).
        """
        # (1)
        self.charters.enter_for(envelope)
        offer, job = open_offer(self._state.charter, envelope)
        plan = offer.message.plan
        async with self._state.locks[plan.context]:
            # (2) ε is computed here, so it runs in a thread.
            admitted = await asyncio.to_thread(
                admit_plan, [self._state.policy], offer, job, self._state.charter
            )
            # (3)
            if self._state.me not in [slot.server for slot in plan.servers]:
                raise Unprocessable(f"plan.servers: expected {self._state.me} among them")
            with self._state.store.write() as transaction:
                # (4)
                if transaction.messages(plan.context, "offer"):
                    return transaction.add_message(plan.context, offer.sender, envelope)
                # (5)
                last = last_round(transaction, plan.job)
                if plan.round <= last:
                    raise OutOfOrder(
                        f"plan.round: expected more than {last} for job {plan.job}, got {plan.round}"
                    )
                # (6)
                needed = bytes_held(transaction) + bytes_needed(plan)
                if needed > self._storage_bytes_max:
                    raise TooLarge(f"storage: expected at most {self._storage_bytes_max} bytes, got {needed}")
                transaction.add_round(plan.context, plan.job, plan.round, "open")
                transaction.add_message(plan.context, offer.sender, envelope)
                transaction.record(
                    "round_admitted",
                    context=plan.context,
                    job=plan.job,
                    round=plan.round,
                    tolerated=[finding.rule for finding in admitted.tolerated],
                )
            self._state.rounds.keep(admitted)
            return True

    async def close(self, ctx: Context) -> Envelope:
        """Freeze and sign the set of silos whose shares are here; asked again, the same set.

        Raises:
            NotFound: no such round. OutOfOrder: the round is over.
        """
        self._state.rounds.of(ctx)
        async with self._state.locks[ctx]:
            with self._state.store.write() as transaction:
                frozen = transaction.message(ctx, "accepted", self._state.me)
                if frozen is not None:
                    return frozen
                phase = follow(transaction.phase(ctx), "close")
                manifests = transaction.messages(ctx, manifest_kind(self._state.rounds.of(ctx).plan))
                revoked = revoked_silos(self._state.rounds.of(ctx).plan, self._state.charters.revoked)
                accepted = AcceptedSet(
                    server=self._state.me,
                    manifests={
                        SiloId(silo): sent.body_digest
                        for silo, sent in manifests.items()
                        if silo not in revoked
                    },
                )
                envelope = self._state.sign(accepted, "accepted", ctx)
                transaction.add_message(ctx, self._state.me, envelope)
                transaction.set_phase(ctx, phase)
                transaction.record("accepted_frozen", context=ctx, silos=sorted(accepted.manifests))
            return envelope

    async def agree(self, ctx: Context, said: Sequence[Envelope]) -> Envelope:
        """Sign the one survivor set this server will ever sum over in this round:

        (1) every server's word, signed, one each: its accepted set, or with validity its verdicts; (2) ours
        among them is the one we signed; (3) survivors are the silos that all accepted with the same
        manifest, and with validity those of them that no server's verdict fails; (4) the threat model's
        minimum holds by our own count.

        Raises:
            Unprocessable: (1), (2), or nobody survives. PolicyRefusal: (4).
            Conflict: we have signed another set. OutOfOrder: nothing is frozen, or the round is over.
        """
        state, admitted = self._state, self._state.rounds.of(ctx)
        async with state.locks[ctx]:
            with state.store.write() as transaction:
                # (1), (2), (3)
                call: Call
                plan = admitted.plan
                if plan.validity is None:
                    call, common = "agree", accepted_everywhere(state, transaction, plan, said)
                else:
                    call, common = "agree_on_valid", valid_everywhere(state, transaction, plan, said)
                if not common:
                    raise Unprocessable("survivors: expected at least one silo in the word of every server")
                survivors = SurvivorSet(
                    server=state.me, survivors=tuple(common), manifests=tuple(common.values())
                )
                assert_none_revoked(plan, survivors.survivors, state.charters.revoked)
                signed = transaction.message(ctx, "survivors", state.me)
                if signed is not None:
                    return _same(signed, state.sign(survivors, "survivors", ctx), "survivors")
                phase = follow(transaction.phase(ctx), call)
                # (4)
                check_survivors(admitted, survivors, state.charter, state.policy)
                envelope = state.sign(survivors, "survivors", ctx)
                transaction.add_message(ctx, state.me, envelope)
                transaction.set_phase(ctx, phase)
                transaction.record(
                    "survivors_signed",
                    context=ctx,
                    survivors=list(survivors.survivors),
                    digest=survivors_digest(survivors),
                )
            return envelope

    async def release(self, ctx: Context, survivors: Sequence[Envelope]) -> Envelope:
        """Release this server's share of the sum, once per context:

        (1) every server's survivor set, signed, one each; (2) the same set was released before: the same
        answer, another one: refused; (3) the release gate clears the cohort; (4) an audit sink
        has taken what was logged before; the release is on disk, under a database key that exists once,
        before anything leaves.

        Raises:
            Unprocessable: (1). Conflict: (2). PolicyRefusal: (3), (4). OutOfOrder: nothing is agreed.
        """
        admitted = self._state.rounds.of(ctx)
        async with self._state.locks[ctx]:
            # (1)
            sets = open_of_servers(self._state.charter, admitted.plan, survivors, SurvivorSet, "survivors")
            digests = {survivors_digest(verified.message) for verified in sets}
            with self._state.store.read() as view:
                # (2)
                released = view.opening(ctx)
                if released is not None and digests != {released}:
                    raise Conflict("release: this round's share has been released for other survivors")
                signed = view.message(ctx, "opening", self._state.me)
                if signed is not None:
                    return signed
                phase = follow(view.phase(ctx), "release")
            # (3)
            assert_none_revoked(admitted.plan, sets[0].message.survivors, self._state.charters.revoked)
            cleared = clear_cohort(
                admitted, sets, self._state.charter, self._state.policy, opened_before=released is not None
            )
            parts = await asyncio.to_thread(sum_share, self._state, cleared)
            share = OpeningShare(server=self._state.me, survivors=cleared.survivors_digest, parts=parts)
            envelope = self._state.sign(share, "opening", ctx)
            # (4)
            taken = await self._state.store.sinks.gate_beside([self._state.policy])
            with self._state.store.write() as transaction:
                transaction.add_opening(ctx, cleared.survivors_digest, taken)
                transaction.add_message(ctx, self._state.me, envelope)
                transaction.set_phase(ctx, phase)
                transaction.record(
                    "share_released", context=ctx, survivors=cleared.survivors_digest, parts=list(parts)
                )
            return envelope

    async def opening_part(self, ctx: Context, index: int) -> bytes:
        """One part of the released share.

        Raises:
            NotFound: no such round or part. OutOfOrder: nothing is released, or it is scrubbed.
        """
        with self._state.store.read() as view:
            follow(view.phase(ctx), "fetch")
        return await self._state.openings.fetch(ctx, part_name(index))

    async def finish(self, ctx: Context, envelope: Envelope) -> None:
        """End the round by the aggregator's signed result and scrub every share of it.

        Raises:
            Conflict: it ended otherwise before, or claims an opening that this server never released.
            NotFound, NotAllowed, SignatureRejected, MalformedMessage.
        """
        async with self._state.locks[ctx]:
            aggregators = [member.id for member in self._state.charter.with_role("aggregator")]
            result = open_from(self._state.charter, aggregators, envelope, RoundResult, "result", ctx)
            with self._state.store.write() as transaction:
                known = transaction.phase(ctx)
                if transaction.add_message(ctx, result.sender, envelope):
                    self._finish(transaction, ctx, known, result.message)
            # Told again, it scrubs again: the store may have been away the first time.
            await asyncio.to_thread(self._state.parts.scrub, ctx)
            await asyncio.to_thread(self._state.openings.scrub, ctx)
            self._state.rounds.forget(ctx)
        self.charters.enter_if_idle()
        self._state.locks.pop(ctx, None)

    def _finish(self, transaction: Writer, ctx: Context, phase: str, result: RoundResult) -> None:
        if result.openings and transaction.opening(ctx) is None:
            raise Conflict("result.openings: this server released no share in this round")
        transaction.set_phase(ctx, follow(phase, "finish"))
        scrub_seeds(transaction, ctx)
        scrub_coins(transaction, ctx)
        if result.model_out is None:
            transaction.record("round_aborted", context=ctx, reason=result.reason)
        else:
            transaction.record("model_published", context=ctx, model=result.model_out)


def _same(before: Envelope, now: Envelope, what: str) -> Envelope:
    if before != now:
        raise Conflict(f"{what}: this server has signed another set in this round; the first one holds")
    return before
