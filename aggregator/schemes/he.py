"""``bfv`` and ``ckks`` at the aggregator: it adds ciphertexts, and takes from the silos what their sum says.

docs/protocols.md, bfv and ckks. A round's table phases fall into the steps so: ciphertexts ─ close ─ agree ─
clear ─► sum ─ record ─► opened ─► total. No key is in this process: silos open the sum, and must all say the
same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from aggregator.blob_store import Blob
from aggregator.job_rows import model_bytes_held
from aggregator.key_rows import key_id
from aggregator.parts import check_parts, part_name
from aggregator.received import open_from, open_offer
from aggregator.round import Round
from aggregator.schemes.flow import OpenedSum, admit_submission, keep, wait_until
from aggregator.schemes.he_opened import OPENED, Agreement, Hearing
from aggregator.state import AggregatorState, Noted, OpenRound
from policies.gates import AdmittedPlan, ClearedCohort, admit_plan, clear_cohort
from privacy.errors import NotFound, OutOfOrder, SealsumError, TooLarge, Unprocessable
from privacy.ids import Context, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import RING_BYTES
from privacy.secagg.he.framing import Form, he_part_count, he_stretch, he_stretches, part_bytes
from privacy.secagg.he.messages import CiphertextManifest, SumManifest
from privacy.secagg.he.parameters import HeParameters, parameters_named
from privacy.secagg.parts import part_count, stretch
from privacy.secagg.vectors import vectors_of
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import SurvivorSet

CIPHERTEXTS: Final = "ciphertexts"
TOTAL: Final = "total"
UPDATE: Final = "parts"
SUM: Final = "sum"


class HeFlow:
    """Rounds in which silos share a key and this server has none."""

    steps: tuple[str, ...] = (CIPHERTEXTS, OPENED, TOTAL)
    unkept: frozenset[str] = frozenset({OPENED, TOTAL})
    """After a restart the sum is published from what was stored of it, or never: see ``resume``."""

    def __init__(self, state: AggregatorState, storage_bytes_max: int) -> None:
        self._state = state
        self._storage_bytes_max = storage_bytes_max

    def upload_size(self, current: OpenRound, silo: SiloId, name: str, index: int) -> int:
        """Ciphertexts while they are collected, later only of survivors; then parts of the opened sum."""
        plan, desk = current.round.plan, current.desk
        if name == UPDATE:
            if not desk.is_open(CIPHERTEXTS) and silo not in desk.answered(CIPHERTEXTS):
                raise OutOfOrder(f"{UPDATE}: encrypted updates are not taken now")
            row, vectors = _row(plan), vectors_of(plan)
            vector, part = vectors.places(partial(he_part_count, row)).at(index)
            return part_bytes(row, he_stretch(row, part, vectors.lengths[vector]), Form.UPDATE)
        if name == OPENED:
            self._is_open_for(current, silo, name)
            vectors = vectors_of(plan)
            vector, part = vectors.places(part_count).at(index)
            return stretch(part, vectors.lengths[vector]).size
        raise Unprocessable(f"{name}: expected {UPDATE} or {OPENED}")

    def download(self, current: OpenRound, silo: SiloId, name: str, index: int) -> Blob:
        """The encrypted sum, for those whose update is in it."""
        plan = current.round.plan
        if name != SUM or index >= vectors_of(plan).places(partial(he_part_count, _row(plan))).total:
            raise NotFound(f"{name} {index}: there is no such file in this scheme")
        self._is_open_for(current, silo, name)
        return Blob(self._state.sums, (current.ctx, part_name(index, SUM)))

    async def announce(self, current: OpenRound) -> None:
        """Nobody else admits the round; here there must be room for ciphertexts, their sum and what it says.

        Raises:
            TooLarge: the disk is promised to models already.
        """
        plan, row = current.round.plan, _row(current.round.plan)
        vectors = vectors_of(plan)
        pieces = [part.piece for part in vectors.parts(partial(he_stretches, row))]
        update = sum(part_bytes(row, piece, Form.UPDATE) for piece in pieces)
        total = sum(part_bytes(row, piece, Form.SUM) for piece in pieces)
        with self._state.store.read() as view:
            needed = model_bytes_held(view) + total
        needed += len(plan.cohort) * (update + RING_BYTES * sum(vectors.lengths.values()))
        if needed > self._storage_bytes_max:
            raise TooLarge(f"storage: expected at most {self._storage_bytes_max} bytes, got {needed}")

    async def recall(self, current: OpenRound) -> None:
        """Nobody else knows anything of the round."""

    async def open(self, current: OpenRound) -> OpenedSum:
        """Collect ciphertexts, clear the survivors, add, use up the opening, and hear what the sum says."""
        manifests = await self._collect(current)
        current.round.step("close")
        current.round.step("agree")
        cleared = await self._clear(current, manifests)
        summed = await self._add(current, cleared, manifests)
        await keep(self._state, current, "record", [summed], "sum_opened", cleared)
        agreement = await self._hear(current, summed, manifests)
        return OpenedSum(cleared, agreement.total)

    async def resume(self, round_: Round) -> OpenedSum:
        """The same sum, where enough silos had said what it is and all of it is on disk; else never.

        Raises:
            Unprocessable: it is not so; the opening is used up.
        """
        ctx, held, me = round_.plan.context, self._state.held, self._state.me
        with self._state.store.read() as view:
            offer = view.messages(ctx, "offer")[me]
            survivors = view.messages(ctx, "survivors")[me]
            summed = view.messages(ctx, "he_sum")[me]
            words = view.messages(ctx, "he_opened")
        admitted = admit_plan([held.policy], *open_offer(held.charter, offer), held.charter)
        # Not a second opening: silos opened this very sum, whose survivors these are.
        cleared = self._cleared(admitted, survivors, opened_before=False)
        hearing = Hearing(self._state, round_.plan, summed, cleared.survivors)
        for silo, envelope in words.items():
            hearing.believe(SiloId(silo), envelope)
        agreement = hearing.agreement()
        if await asyncio.to_thread(agreement.lacking):
            raise Unprocessable("opened: parts of what silos said did not come; the opening is used up")
        return OpenedSum(cleared, agreement.total)

    async def finish(self, ctx: Context, result: Envelope) -> bool:
        """Delete ciphertexts, their sum and what it says; the job's key goes when the job ends."""
        await asyncio.to_thread(self._state.parts.scrub, ctx)
        await asyncio.to_thread(self._state.sums.scrub, ctx)
        return True

    async def _collect(self, current: OpenRound) -> dict[SiloId, Verified[CiphertextManifest]]:
        """Whose whole update is here, once all have answered or the time is up.

        Raises:
            Unprocessable: nobody's is.
        """
        believed: dict[SiloId, Verified[CiphertextManifest]] = {}

        async def accept(silo: SiloId, messages: Sequence[Envelope]) -> None:
            believed[silo] = await self._judge(current, silo, messages)

        current.desk.open(CIPHERTEXTS, dict.fromkeys(current.round.plan.silos, ()), accept)
        self._state.bell.ring()
        if not await current.desk.take_up(CIPHERTEXTS):
            await wait_until(self._state, current, lambda: current.round.complete)
        came = current.desk.close(CIPHERTEXTS)
        if not came:
            raise Unprocessable("ciphertexts: expected those of some silos, got none")
        return {silo: believed[silo] for silo in came}

    async def _judge(
        self, current: OpenRound, silo: SiloId, messages: Sequence[Envelope]
    ) -> Verified[CiphertextManifest]:
        """Believe one silo's update, in this order:

        (1) one manifest, its own, for this round; (2) the submission gate; (3) under the job's key; (4) every
        part is here, byte for byte; (5) updates are still taken, after all that.
        """
        # (1)
        if len(messages) != 1:
            raise Unprocessable(f"{CIPHERTEXTS} of silo {silo}: expected one message, got {len(messages)}")
        manifest = open_from(
            self._state.held.charter, [silo], messages[0], CiphertextManifest, "he_manifest", current.ctx
        )
        current.round.check_answer(silo, "manifest")
        # (2)
        update = admit_submission(self._state, current, manifest)
        # (3)
        with self._state.store.read() as view:
            key = key_id(view, current.round.plan.job_digest)
        if manifest.message.key != key:
            raise Unprocessable(
                f"manifest.key of silo {silo}: it is not the job's; fetch the job's key again"
            )
        # (4)
        parts = manifest.message.parts
        names = [part_name(index, UPDATE) for index in range(len(parts))]
        await asyncio.to_thread(check_parts, self._state.parts, current.ctx, silo, names, parts)
        # (5)
        if not current.desk.is_open(CIPHERTEXTS):
            raise OutOfOrder(f"{CIPHERTEXTS}: the step closed while silo {silo}'s parts were looked at")
        current.round.answered(silo, "manifest")
        noted = Noted(silo, manifest.envelope, {"manifest": update.manifest_digest}, manifest)
        current.noted["he_manifest", silo] = noted
        return manifest

    async def _clear(
        self, current: OpenRound, manifests: dict[SiloId, Verified[CiphertextManifest]]
    ) -> ClearedCohort:
        """Sign the survivors and pass the release gate."""
        own = self._state.sign(
            SurvivorSet(
                server=ServerId(self._state.me),
                survivors=tuple(manifests),
                manifests=tuple(manifest.envelope.body_digest for manifest in manifests.values()),
            ),
            "survivors",
            current.ctx,
        )
        with self._state.store.read() as view:
            opened = view.opening(current.ctx) is not None
        cleared = self._cleared(current.admitted, own, opened_before=opened)
        await keep(self._state, current, "clear", [own], "cohort_cleared", cleared)
        return cleared

    def _cleared(self, admitted: AdmittedPlan, survivors: Envelope, opened_before: bool) -> ClearedCohort:
        charter, me = self._state.held.charter, self._state.me
        signed = open_from(charter, [me], survivors, SurvivorSet, "survivors", admitted.context)
        return clear_cohort(admitted, [signed], charter, self._state.held.policy, opened_before=opened_before)

    async def _add(
        self,
        current: OpenRound,
        cleared: ClearedCohort,
        manifests: dict[SiloId, Verified[CiphertextManifest]],
    ) -> Envelope:
        """The signed list of what the encrypted sum is, with all its parts on disk.

        Raises:
            Unprocessable: more keys than one, or a part that holds no ciphertexts.
        """
        # Imported in a round that needs it: TenSEAL is an extra, which federations of other schemes lack.
        from aggregator.schemes.he_adding import AddingUp

        plan = current.round.plan
        survivors = {silo: manifests[silo].message for silo in cleared.survivors}
        adding = AddingUp(self._state.parts, self._state.sums, plan, survivors)
        summed = SumManifest(
            parameters=_row(plan).name,
            key=adding.key,
            vector_length=plan.vector_length,
            survivors=cleared.survivors,
            manifests=tuple(manifests[silo].envelope.body_digest for silo in cleared.survivors),
            parts=await asyncio.to_thread(adding.run),
        )
        return self._state.sign(summed, "he_sum", current.ctx)

    async def _hear(
        self, current: OpenRound, summed: Envelope, manifests: dict[SiloId, Verified[CiphertextManifest]]
    ) -> Agreement:
        """What the sum says, once enough survivors say the same and all of it is here."""
        state, desk = self._state, current.desk
        hearing = Hearing(state, current.round.plan, summed, tuple(manifests))
        inbox = (summed, *(manifest.envelope for manifest in manifests.values()))
        desk.open(OPENED, dict.fromkeys(manifests, inbox), hearing.accept)
        state.bell.ring()
        await wait_until(state, current, lambda: hearing.settled)
        desk.close(OPENED)
        with state.store.write() as transaction:
            for silo, word in hearing.words.items():
                transaction.add_message(current.ctx, silo, word.envelope)
        agreement = hearing.agreement()
        lacking = await asyncio.to_thread(agreement.lacking)
        if lacking:
            # Whoever was to send these is gone; the others send them too.
            desk.open(TOTAL, dict.fromkeys(agreement.silos, ()), partial(hearing.accept_rest, agreement))
            state.bell.ring()
            await wait_until(state, current, lambda: bool(desk.answered(TOTAL)))
            desk.close(TOTAL)
            if await asyncio.to_thread(agreement.lacking):
                raise Unprocessable("opened: parts of what silos said did not come; the opening is used up")
        return agreement

    def _is_open_for(self, current: OpenRound, silo: SiloId, name: str) -> None:
        """Whether the sum is out, and this silo's update in it."""
        if current.desk.inbox(OPENED, silo) is None:
            raise OutOfOrder(f"{name}: the sum is not out yet")


def _row(plan: RoundPlan) -> HeParameters:
    if plan.he is None:
        raise SealsumError(f"plan.he: expected a row of parameters with {plan.scheme}")
    return parameters_named(plan.he)
