"""What a share server does with each call of a round, by its own judgement. Knows no HTTP.

It believes neither the aggregator nor the other servers: it admits each plan by its own gate, checks
the survivors itself, and releases one aggregate share per context, ever.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from aggregator.blobs import Directory
from aggregator.parts import part_name
from aggregator.received import open_from, open_of_servers, open_offer, survivors_of
from aggregator.share_server.phases import follow
from aggregator.share_server.receiving import ShareIntake
from aggregator.share_server.rounds import (
    AdmittedRounds,
    bytes_held,
    bytes_needed,
    last_round,
    scrub_seeds,
    seeds_of,
    unfinished,
)
from aggregator.share_server.summing import sum_masks, sum_vectors
from aggregator.store import Store
from policies.gates import AdmittedPlan, ClearedCohort, admit_plan, check_survivors, clear_cohort
from policies.loader import LoadedPolicy
from privacy.errors import Conflict, OutOfOrder, TooLarge, Unprocessable
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.keystore import Identity
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, MessageKind, sign_message
from privacy.wire.messages import (
    AcceptedSet,
    OpeningShare,
    RoundResult,
    ShareManifest,
    SurvivorSet,
    survivors_digest,
)


class ShareServer:
    """One share server of one federation."""

    def __init__(
        self,
        identity: Identity,
        charter: Charter,
        policy: LoadedPolicy,
        store: Store,
        parts: Directory,
        openings: Directory,
        storage_bytes_max: int,
    ) -> None:
        self._identity = identity
        self._me = ServerId(identity.pin.party)
        self._charter = charter
        self._policy = policy
        self._store = store
        self._parts = parts
        self._openings = openings
        self._storage_bytes_max = storage_bytes_max
        self._rounds = AdmittedRounds(store, charter, policy)
        self._locks: defaultdict[Context, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.intake = ShareIntake(identity, charter, store, parts, self._rounds, self._locks)
        self._sweep()

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
        offer, job = open_offer(self._charter, envelope)
        plan = offer.message.plan
        async with self._locks[plan.context]:
            # (2) ε is computed here, so it runs in a thread.
            admitted = await asyncio.to_thread(admit_plan, [self._policy], offer, job, self._charter)
            # (3)
            if self._me not in [slot.server for slot in plan.servers]:
                raise Unprocessable(f"plan.servers: expected {self._me} among them")
            with self._store.write() as transaction:
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
            self._rounds.keep(admitted)
            return True

    async def close(self, ctx: Context) -> Envelope:
        """Freeze and sign the set of silos whose shares are here; asked again, the same set.

        Raises:
            NotFound: no such round. OutOfOrder: the round is over.
        """
        self._rounds.of(ctx)
        async with self._locks[ctx]:
            with self._store.write() as transaction:
                frozen = transaction.message(ctx, "accepted", self._me)
                if frozen is not None:
                    return frozen
                phase = follow(transaction.phase(ctx), "close")
                manifests = transaction.messages(ctx, "manifest")
                accepted = AcceptedSet(
                    server=self._me,
                    manifests={SiloId(silo): sent.body_digest for silo, sent in manifests.items()},
                )
                envelope = self._sign(accepted, "accepted", ctx)
                transaction.add_message(ctx, self._me, envelope)
                transaction.set_phase(ctx, phase)
                transaction.record("accepted_frozen", context=ctx, silos=sorted(manifests))
            return envelope

    async def agree(self, ctx: Context, accepted: Sequence[Envelope]) -> Envelope:
        """Sign the one survivor set this server will ever sum over in this round:

        (1) every server's accepted set, signed, one each; (2) ours among them is the one we froze;
        (3) survivors are the silos that all accepted with the same manifest; (4) the threat model's
        minimum holds by our own count.

        Raises:
            Unprocessable: (1), (2), or nobody survives. PolicyRefusal: (4).
            Conflict: we have signed another set. OutOfOrder: nothing is frozen, or the round is over.
        """
        admitted = self._rounds.of(ctx)
        async with self._locks[ctx]:
            # (1)
            sets = open_of_servers(self._charter, admitted.plan, accepted, AcceptedSet, "accepted")
            with self._store.write() as transaction:
                # (2)
                ours = transaction.message(ctx, "accepted", self._me)
                if ours is None:
                    raise OutOfOrder("round: agree comes after close")
                if not any(verified.envelope == ours for verified in sets):
                    raise Unprocessable(f"accepted of {self._me}: expected the set that was frozen here")
                # (3)
                common = survivors_of([verified.message for verified in sets])
                if not common:
                    raise Unprocessable("survivors: expected at least one silo in every accepted set")
                survivors = SurvivorSet(
                    server=self._me,
                    survivors=tuple(SiloId(silo) for silo in common),
                    manifests=tuple(common.values()),
                )
                signed = transaction.message(ctx, "survivors", self._me)
                if signed is not None:
                    return _same(signed, self._sign(survivors, "survivors", ctx), "survivors")
                phase = follow(transaction.phase(ctx), "agree")
                # (4)
                check_survivors(admitted, survivors, self._charter, self._policy)
                envelope = self._sign(survivors, "survivors", ctx)
                transaction.add_message(ctx, self._me, envelope)
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
        answer, another one: refused; (3) the release gate clears the cohort; (4) the release is on disk,
        under a database key that exists once, before anything leaves.

        Raises:
            Unprocessable: (1). Conflict: (2). PolicyRefusal: (3). OutOfOrder: nothing is agreed.
        """
        admitted = self._rounds.of(ctx)
        async with self._locks[ctx]:
            # (1)
            sets = open_of_servers(self._charter, admitted.plan, survivors, SurvivorSet, "survivors")
            digests = {survivors_digest(verified.message) for verified in sets}
            with self._store.read() as view:
                # (2)
                released = view.opening(ctx)
                if released is not None and digests != {released}:
                    raise Conflict("release: this round's share has been released for other survivors")
                signed = view.message(ctx, "opening", self._me)
                if signed is not None:
                    return signed
                phase = follow(view.phase(ctx), "release")
            # (3)
            cleared = clear_cohort(
                admitted, sets, self._charter, self._policy, opened_before=released is not None
            )
            parts = await asyncio.to_thread(self._sum, admitted, cleared)
            share = OpeningShare(server=self._me, survivors=cleared.survivors_digest, parts=parts)
            envelope = self._sign(share, "opening", ctx)
            # (4)
            with self._store.write() as transaction:
                transaction.add_opening(ctx, cleared.survivors_digest)
                transaction.add_message(ctx, self._me, envelope)
                transaction.set_phase(ctx, phase)
                transaction.record(
                    "share_released", context=ctx, survivors=cleared.survivors_digest, parts=list(parts)
                )
            return envelope

    def opening_part(self, ctx: Context, index: int) -> bytes:
        """One part of the released share.

        Raises:
            NotFound: no such round or part. OutOfOrder: nothing is released, or it is scrubbed.
        """
        with self._store.read() as view:
            follow(view.phase(ctx), "fetch")
        return self._openings.read(ctx, part_name(index))

    async def finish(self, ctx: Context, envelope: Envelope) -> None:
        """End the round by the aggregator's signed result and scrub every share of it.

        Raises:
            Conflict: it ended otherwise before, or claims an opening that this server never released.
            NotFound, NotAllowed, SignatureRejected, MalformedMessage.
        """
        async with self._locks[ctx]:
            aggregators = [member.id for member in self._charter.with_role("aggregator")]
            result = open_from(self._charter, aggregators, envelope, RoundResult, "result", ctx)
            with self._store.write() as transaction:
                known = transaction.phase(ctx)
                if not transaction.add_message(ctx, result.sender, envelope):
                    return
                if result.message.openings and transaction.opening(ctx) is None:
                    raise Conflict("result.openings: this server released no share in this round")
                transaction.set_phase(ctx, follow(known, "finish"))
                scrub_seeds(transaction, ctx)
                if result.message.model_out is None:
                    transaction.record("round_aborted", context=ctx, reason=result.message.reason)
                else:
                    transaction.record("model_published", context=ctx, model=result.message.model_out)
            await asyncio.to_thread(self._parts.scrub, ctx)
            await asyncio.to_thread(self._openings.scrub, ctx)
            self._rounds.forget(ctx)
        self._locks.pop(ctx, None)

    def _sum(self, admitted: AdmittedPlan, cleared: ClearedCohort) -> tuple[Digest, ...]:
        plan = admitted.plan
        with self._store.read() as view:
            manifests = view.messages(plan.context, "manifest")
            sealed = seeds_of(view, plan.context)
        if plan.servers[0].server == self._me:
            chosen = [ShareManifest.model_validate_json(manifests[silo].body) for silo in cleared.survivors]
            return sum_vectors(plan, chosen, self._parts, self._openings)
        key = self._identity.sealing
        assert key is not None  # noqa: S101 - the keystore loads one for every share server
        return sum_masks(
            plan, {silo: sealed[silo] for silo in cleared.survivors}, self._me, key, self._openings
        )

    def _sign(
        self, message: AcceptedSet | SurvivorSet | OpeningShare, kind: MessageKind, ctx: Context
    ) -> Envelope:
        return sign_message(message, kind, ctx, PartyId(self._me), self._identity.signing)

    def _sweep(self) -> None:
        """After a crash between the end of a round and its scrubbing: scrub what is left of it."""
        with self._store.read() as view:
            held = set(unfinished(view))
        for directory in (self._parts, self._openings):
            for name in directory.names():
                if name not in held:
                    directory.scrub(name)


def _same(before: Envelope, now: Envelope, what: str) -> Envelope:
    if before != now:
        raise Conflict(f"{what}: this server has signed another set in this round; the first one holds")
    return before
