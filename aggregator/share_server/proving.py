"""Taking in silos' proofs at the first share server: the witness share, and the manifest that commits to it.

The other servers expand their shares of a witness from the seeds they have. A silo proves once: its witness
is tied to coin 1, and what is here when the proofs are frozen is what coin 2 is tossed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aggregator.blobs import sha256_of
from aggregator.parts import check_field_parts, part_name
from aggregator.received import open_from
from aggregator.share_server.fixed import candidates_of, coin_of
from aggregator.share_server.phases import follow
from aggregator.share_server.state import ShareServerState
from privacy.errors import NotAllowed, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.agreement import assert_proof_fits
from privacy.secagg.validity.cut import witness_bytes
from privacy.secagg.validity.messages import ProofManifest
from privacy.secagg.validity.terms import terms_of
from privacy.wire.envelope import Envelope

WITNESS = part_name(0, "witness")
"""File name of a silo's witness share beside its parts."""


class ProofIntake:
    """Receives proofs for the rounds that this server has admitted."""

    def __init__(self, state: ShareServerState) -> None:
        self._state = state

    def witness_size(self, ctx: Context, silo: SiloId) -> int:
        """Bytes of a witness share of this round; asked before a byte of it is read.

        Raises:
            NotFound: no such round. Unprocessable: not our task. NotAllowed: this silo has nothing to prove.
            OutOfOrder: coin 1 is not tossed, or proofs are frozen.
        """
        plan = self._plan(ctx)
        with self._state.store.read() as view:
            follow(view.phase(ctx), "witness")
            if silo not in candidates_of(view, plan):
                raise NotAllowed(f"silo {silo}: not every server accepted its shares in this round")
        return witness_bytes(terms_of(plan))

    async def receive_witness(
        self, ctx: Context, silo: SiloId, digest: Digest, body: AsyncIterator[bytes]
    ) -> bool:
        """Store a silo's witness share; True if it is new, False if these bytes were here.

        Raises:
            as ``witness_size``. Conflict: other bytes came first. TooLarge, Unprocessable: see
                ``Blobs.receive``.
        """
        size = self.witness_size(ctx, silo)
        new = await self._state.parts.receive(body, digest, sha256_of, ctx, silo, WITNESS, limit=size)
        with self._state.store.read() as view:
            if view.phase(ctx) == "finished":
                # The round ended while these bytes arrived: its scrubbing is done again.
                await asyncio.to_thread(self._state.parts.scrub, ctx)
                raise OutOfOrder("round: it ended while this witness arrived")
        return new

    async def accept(self, ctx: Context, silo: SiloId, envelope: Envelope) -> bool:
        """Accept a silo's proof by its manifest; True if it is new. Checks, in this order:

        (1) that silo signed it under this round's context; (2) the very same one is here already, or (3)
        proofs are taken now; (4) it is about the shares that all servers accepted, and answers coin 1; (5)
        the witness it names is here, of field elements.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: (1). Conflict: (2), another one.
            OutOfOrder: (3). Unprocessable, MalformedMessage: (4), (5).
        """
        plan = self._plan(ctx)
        async with self._state.locks[ctx]:
            # (1)
            proof = open_from(self._state.charter, [silo], envelope, ProofManifest, "validity_proof", ctx)
            with self._state.store.read() as view:
                # (2)
                if view.message(ctx, "validity_proof", silo) == envelope:
                    return False
                # (3)
                phase = follow(view.phase(ctx), "witness")
                # (4)
                assert_proof_fits(proof, candidates_of(view, plan), coin_of(view, plan, 1))
            # (5)
            await asyncio.to_thread(
                check_field_parts, self._state.parts, ctx, silo, [WITNESS], [proof.message.witness]
            )
            with self._state.store.write() as transaction:
                new = transaction.add_message(ctx, silo, envelope)
                transaction.set_phase(ctx, phase)
                transaction.record("proof_accepted", context=ctx, silo=silo, proof=envelope.body_digest)
            return new

    async def freeze(self, ctx: Context) -> tuple[Envelope, ...]:
        """Take no more proofs; the ones that are here, by silo. Asked again, the same ones.

        Raises:
            NotFound: no such round. Unprocessable: not our task. OutOfOrder: coin 1 is not tossed.
        """
        self._plan(ctx)
        async with self._state.locks[ctx]:
            with self._state.store.write() as transaction:
                phase = transaction.phase(ctx)
                if phase in ("open", "frozen", "tossing_shares", "proving"):
                    transaction.set_phase(ctx, follow(phase, "freeze_proofs"))
                    proven = transaction.messages(ctx, "validity_proof")
                    transaction.record("proofs_frozen", context=ctx, silos=sorted(proven))
                return tuple(transaction.messages(ctx, "validity_proof").values())

    def _plan(self, ctx: Context) -> RoundPlan:
        plan = self._state.plan_with_validity(ctx)
        if not self._state.is_first(plan):
            raise Unprocessable(f"proof: it goes to {plan.servers[0].server}, which holds the vectors")
        return plan
