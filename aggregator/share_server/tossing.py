"""A share server's part in the two tosses of a round with validity: commit, reveal, settle. Knows no HTTP.

Each value is drawn once and is on disk before its commitment leaves; it is revealed only against the
commitments of all servers, the first ones shown. So whoever carries the messages, or restarts this process,
can end a toss but not choose between two of its coins (privacy/secagg/validity/coins.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select

from aggregator.received import open_from, open_of_servers
from aggregator.share_server.fixed import candidates_of, coin_of, proofs_of, toss_of
from aggregator.share_server.phases import Call, follow
from aggregator.share_server.state import ShareServerState
from aggregator.store import Reader, Writer
from aggregator.tables import coins
from privacy.errors import Conflict, OutOfOrder, Unprocessable
from privacy.ids import Context, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.agreement import assert_about, assert_proof_fits
from privacy.secagg.validity.coins import CoinHalf, Step
from privacy.secagg.validity.messages import COIN_KINDS, CoinCommitment, CoinReveal, ProofManifest
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import AcceptedSet

_COMMIT: dict[Step, Call] = {1: "commit_shares", 2: "commit_proofs"}
_REVEAL: dict[Step, Call] = {1: "reveal_shares", 2: "reveal_proofs"}
_SETTLE: dict[Step, Call] = {1: "settle_shares", 2: "settle_proofs"}


class Tossing:
    """This server's half of each round's coins."""

    def __init__(self, state: ShareServerState) -> None:
        self._state = state

    async def commit(self, ctx: Context, step: Step, fixed: Sequence[Envelope]) -> Envelope:
        """Fix what the toss is over, and commit to a fresh value; asked again, the same commitment.

        (1) ``fixed`` is signed: step 1, every server's accepted set, ours the one we froze; step 2, the
        silos' proofs, at the first server exactly those that it froze; (2) what was fixed before is never
        fixed otherwise; (3) the value is stored with its commitment before either leaves.

        Raises:
            Unprocessable, NotAllowed, SignatureRejected, MalformedMessage: (1). Conflict: (2).
            OutOfOrder: not now.
        """
        plan = self._state.plan_with_validity(ctx)
        async with self._state.locks[ctx]:
            with self._state.store.write() as transaction:
                kind = COIN_KINDS[step][0]
                known = transaction.message(ctx, kind, self._state.me)
                phase = transaction.phase(ctx)
                if known is None and step == 2 and not self._state.is_first(plan):
                    phase = follow(phase, "freeze_proofs")
                after = phase if known is not None else follow(phase, _COMMIT[step])
                # (1), (2)
                if step == 1:
                    self._fix_candidates(transaction, plan, fixed)
                else:
                    self._fix_proofs(transaction, plan, fixed, known is not None)
                if known is not None:
                    return known
                # (3)
                half = CoinHalf(toss_of(transaction, plan, step), self._state.me)
                transaction.connection.execute(insert(coins).values(ctx=ctx, step=step, value=half.to_store))
                commitment = CoinCommitment(
                    server=self._state.me, step=step, frozen=half.toss.frozen, commitment=half.commitment
                )
                envelope = self._state.sign(commitment, kind, ctx)
                transaction.add_message(ctx, self._state.me, envelope)
                transaction.set_phase(ctx, after)
                transaction.record("coin_committed", context=ctx, step=step, frozen=half.toss.frozen)
            return envelope

    async def reveal(self, ctx: Context, step: Step, commitments: Sequence[Envelope]) -> Envelope:
        """Reveal our value against all servers' commitments; asked again, the same value.

        (1) One commitment of each server, about this toss, ours the one we gave; (2) no other ones were shown
        before; (3) they are stored before the value leaves.

        Raises:
            Unprocessable, NotAllowed, SignatureRejected, MalformedMessage: (1). Conflict: (2).
            OutOfOrder: not now.
        """
        plan = self._state.plan_with_validity(ctx)
        async with self._state.locks[ctx]:
            said = open_of_servers(
                self._state.charter, plan, commitments, CoinCommitment, COIN_KINDS[step][0]
            )
            with self._state.store.write() as transaction:
                kind = COIN_KINDS[step][1]
                known = transaction.message(ctx, kind, self._state.me)
                phase = transaction.phase(ctx)
                after = phase if known is not None else follow(phase, _REVEAL[step])
                # (1)
                toss = toss_of(transaction, plan, step)
                assert_about(toss, [one.message for one in said])
                # (2)
                _add_all(transaction, ctx, said)
                if known is not None:
                    return known
                half = CoinHalf.stored(toss, self._state.me, _value_of(transaction, ctx, step))
                value = half.reveal({one.message.server: one.message.commitment for one in said})
                reveal = CoinReveal.model_validate(
                    {"server": self._state.me, "step": step, "frozen": toss.frozen, "value": value.hex()}
                )
                envelope = self._state.sign(reveal, kind, ctx)
                # (3)
                transaction.add_message(ctx, self._state.me, envelope)
                transaction.set_phase(ctx, after)
                transaction.record("coin_revealed", context=ctx, step=step)
            return envelope

    async def settle(self, ctx: Context, step: Step, reveals: Sequence[Envelope]) -> None:
        """Take every server's value: from here on the coin is known here.

        Raises:
            Unprocessable: one is missing, is about another toss, or is not what its server committed to.
            Conflict: another value was shown before. OutOfOrder: not now.
        """
        plan = self._state.plan_with_validity(ctx)
        async with self._state.locks[ctx]:
            said = open_of_servers(self._state.charter, plan, reveals, CoinReveal, COIN_KINDS[step][1])
            with self._state.store.write() as transaction:
                if _add_all(transaction, ctx, said):
                    after = follow(transaction.phase(ctx), _SETTLE[step])
                    coin = coin_of(transaction, plan, step)
                    transaction.set_phase(ctx, after)
                    transaction.record("coin_settled", context=ctx, step=step, coin=coin.digest)

    def _fix_candidates(self, transaction: Writer, plan: RoundPlan, accepted: Sequence[Envelope]) -> None:
        sets = open_of_servers(self._state.charter, plan, accepted, AcceptedSet, "accepted")
        if transaction.message(plan.context, "accepted", self._state.me) is None:
            raise OutOfOrder("round: a toss comes after close")
        _add_all(transaction, plan.context, sets)  # a Conflict where ours is not the one we froze

    def _fix_proofs(
        self, transaction: Writer, plan: RoundPlan, proofs: Sequence[Envelope], fixed_before: bool
    ) -> None:
        candidates = candidates_of(transaction, plan)
        coin = coin_of(transaction, plan, 1)
        opened: dict[SiloId, Envelope] = {}
        for envelope in proofs:
            proof = open_from(
                self._state.charter, plan.silos, envelope, ProofManifest, "validity_proof", plan.context
            )
            assert_proof_fits(proof, candidates, coin)
            opened[proof.message.silo] = envelope
        if len(opened) != len(proofs):
            raise Unprocessable("proofs: expected one of each silo")
        given = {silo: envelope.body_digest for silo, envelope in opened.items()}
        if (fixed_before or self._state.is_first(plan)) and given != proofs_of(transaction, plan):
            raise Conflict("proofs: other ones are fixed here for this round; those hold")
        for silo, envelope in opened.items():
            transaction.add_message(plan.context, silo, envelope)


def scrub_coins(transaction: Writer, ctx: Context) -> None:
    """Delete what was drawn for a round's tosses."""
    transaction.connection.execute(delete(coins).where(coins.c.ctx == ctx))


def _value_of(view: Reader, ctx: Context, step: Step) -> bytes:
    query = select(coins.c.value).where(coins.c.ctx == ctx, coins.c.step == step)
    return bytes(view.connection.execute(query).scalar_one())


def _add_all(
    transaction: Writer,
    ctx: Context,
    said: Sequence[Verified[AcceptedSet] | Verified[CoinCommitment] | Verified[CoinReveal]],
) -> bool:
    """Store all of them; whether any is new.

    Raises:
        Conflict: a server said something else before.
    """
    new = [transaction.add_message(ctx, one.sender, one.envelope) for one in said]
    return any(new)
