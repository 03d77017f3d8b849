"""``pairwise`` at the aggregator: five signed steps over the desk, and the masks off one sum.

docs/protocols.md, pairwise; what is believed and when a step may close is ``privacy/secagg/pairwise``'s to
judge. A round's table phases fall into the steps so: keys, shares, masked ─ close ─► consistency ─ agree ─►
clear ─► record ─► unmask. Nothing that unmasks is asked for before the opening is on record, nor ever stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aggregator.blob_store import Blob
from aggregator.job_rows import model_bytes_held
from aggregator.parts import part_name
from aggregator.received import open_from
from aggregator.round import Round
from aggregator.schemes.flow import OpenedSum, keep
from aggregator.schemes.pairwise_steps import PARTS, STEPS, PairwiseSteps
from aggregator.state import AggregatorState, OpenRound
from policies.gates import ClearedCohort, clear_cohort
from privacy.errors import NotAllowed, NotFound, OutOfOrder, TooLarge, Unprocessable
from privacy.ids import Context, ServerId, SiloId
from privacy.secagg.additive import RING_BYTES, Ring
from privacy.secagg.pairwise.opening import Agreed
from privacy.secagg.pairwise.terms import terms_of
from privacy.secagg.pairwise.unmasking import CheckedPart, SumHalf, check_part
from privacy.secagg.parts import Stretch, part_count, stretch
from privacy.secagg.vectors import MODEL, VectorName, vectors_of
from privacy.wire.envelope import Envelope
from privacy.wire.messages import SurvivorSet

FORGOTTEN: Final = (
    "pairwise: the shares that take masks off are never stored, so this sum cannot be opened after a "
    "restart; its opening is used up"
)


class PairwiseFlow:
    """Rounds with one server, this one."""

    steps: tuple[str, ...] = STEPS
    unkept: frozenset[str] = frozenset({"unmask"})
    """With the masked updates on the same disk, its messages would open them one by one."""

    def __init__(self, state: AggregatorState, storage_bytes_max: int) -> None:
        self._state = state
        self._storage_bytes_max = storage_bytes_max

    def upload_size(self, current: OpenRound, silo: SiloId, name: str, index: int) -> int:
        """Masked parts come while their step is open, from those who dealt; later only what is here already.

        Raises:
            Unprocessable, OutOfOrder, NotAllowed: see ``SchemeFlow``.
        """
        if name != PARTS:
            raise Unprocessable(f"{name}: expected {PARTS}, the one kind of file in this scheme")
        plan = current.round.plan
        vectors = vectors_of(plan)
        vector, part = vectors.places(part_count).at(index)
        piece = stretch(part, vectors.lengths[vector])
        desk = current.desk
        if not desk.is_open("masked") and silo not in desk.answered("masked"):
            raise OutOfOrder(f"{PARTS}: masked updates are not taken now")
        if silo not in desk.expected("masked"):
            raise NotAllowed(f"{PARTS}: silo {silo} dealt no shares, so its masks could not come off")
        return piece.size

    def download(self, current: OpenRound, silo: SiloId, name: str, index: int) -> Blob:
        """Nothing is fetched but the inboxes of steps."""
        raise NotFound(f"{name}: there is no such file in this scheme")

    async def announce(self, current: OpenRound) -> None:
        """Nobody else admits the round; here it must have terms, and room for every masked update.

        Raises:
            WeakTerms: the plan makes no pairwise round. TooLarge: the disk is promised to models already.
        """
        plan = current.round.plan
        terms_of(plan, self._state.me)
        with self._state.store.read() as view:
            elements = sum(vectors_of(plan).lengths.values())
            needed = model_bytes_held(view) + len(plan.cohort) * RING_BYTES * elements
        if needed > self._storage_bytes_max:
            raise TooLarge(f"storage: expected at most {self._storage_bytes_max} bytes, got {needed}")

    async def recall(self, current: OpenRound) -> None:
        """Nobody else knows anything of the round."""

    async def open(self, current: OpenRound) -> OpenedSum:
        """The five steps, in the order of the round's table."""
        steps = PairwiseSteps(self._state, current, terms_of(current.round.plan, self._state.me))
        masked = await steps.masked(await steps.shares(await steps.keys()))
        current.round.step("close")
        agreed = await steps.consistency(masked)
        current.round.step("agree")
        cleared = await self._clear(current, agreed)
        half = await steps.unmask(agreed)
        return OpenedSum(cleared, MaskedParts(self._state, agreed, half).total)

    async def resume(self, round_: Round) -> OpenedSum:
        """Never: what could unmask the sum was in memory only.

        Raises:
            Unprocessable: always.
        """
        raise Unprocessable(FORGOTTEN)

    async def finish(self, ctx: Context, result: Envelope) -> bool:
        """Delete the masked updates; keys and shares were never on disk."""
        await asyncio.to_thread(self._state.parts.scrub, ctx)
        return True

    async def _clear(self, current: OpenRound, agreed: Agreed) -> ClearedCohort:
        """Sign the survivors whom t of them have signed, pass the release gate, and use up the opening."""
        state, charter = self._state, self._state.held.charter
        statement = agreed.statement
        own = state.sign(
            SurvivorSet(server=ServerId(state.me), survivors=statement.survivors, manifests=statement.inputs),
            "survivors",
            current.ctx,
        )
        with state.store.read() as view:
            opened = view.opening(current.ctx) is not None
        cleared = clear_cohort(
            current.admitted,
            [open_from(charter, [state.me], own, SurvivorSet, "survivors", current.ctx)],
            charter,
            state.held.policy,
            opened_before=opened,
            signatures=list(agreed.signatures.values()),
        )
        evidence = [*agreed.masked.shares.keys.relay, *agreed.relay, own]
        await keep(state, current, "clear", evidence, "cohort_cleared", cleared)
        await keep(state, current, "record", [], "sum_opened", cleared)
        return cleared


@dataclass(frozen=True)
class MaskedParts:
    """Every survivor's masked parts on disk, and what takes the masks off their sum."""

    state: AggregatorState
    agreed: Agreed
    half: SumHalf

    async def total(self, piece: Stretch, vector: VectorName = MODEL) -> Ring:
        """One stretch of a vector's sum, a part in memory at a time.

        Raises:
            Unprocessable: a part on disk is not the one its silo signed for.
        """
        return await asyncio.to_thread(self._total, piece, vector)

    def _total(self, piece: Stretch, vector: VectorName) -> Ring:
        place = self.agreed.masked.terms.places.place(vector, piece.index)
        return self.half.total(piece.index, self._parts(place), vector)

    def _parts(self, index: int) -> Iterable[CheckedPart]:
        ctx, name = self.agreed.masked.terms.context, part_name(index, PARTS)
        for silo, manifest in self.agreed.masked.manifests.items():
            yield check_part(manifest, index, self.state.parts.read(ctx, silo, name))
