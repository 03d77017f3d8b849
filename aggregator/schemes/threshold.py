"""``threshold_bfv`` and ``threshold_ckks`` at the aggregator: it adds ciphertexts, and opens one sum with all
silos' help.

docs/protocols.md, threshold_bfv and threshold_ckks. A round's table phases fall into the steps so: commit,
reveal, manifest ─ close ─► upload ─ agree ─► clear ─► record ─► partial. The key is in nobody's hands;
nothing that opens is asked for before the opening is on record, nor kept beyond the round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aggregator.blob_store import Blob, Blobs
from aggregator.job_rows import model_bytes_held
from aggregator.parts import part_name
from aggregator.received import open_from
from aggregator.round import Round
from aggregator.schemes.flow import OpenedSum, keep
from aggregator.schemes.threshold_steps import (
    BODIES,
    MASKS,
    PARTIAL,
    PARTIALS,
    STEPS,
    UPLOAD,
    ThresholdSteps,
)
from aggregator.state import AggregatorState, OpenRound
from policies.gates import ClearedCohort, clear_cohort
from privacy.errors import NotFound, OutOfOrder, TooLarge, Unprocessable
from privacy.ids import Context, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import RING_BYTES, Ring, ring_from_bytes, ring_to_bytes
from privacy.secagg.parts import Stretch, recut
from privacy.secagg.threshold.collecting import ManifestsClosed
from privacy.secagg.threshold.parts import threshold_part_count, threshold_stretch, threshold_stretches
from privacy.secagg.threshold.summing import Adder, Fuser, PartialsClosed
from privacy.secagg.threshold.terms import ThresholdTerms, terms_of
from privacy.secagg.threshold.worker import Worker
from privacy.secagg.vectors import MODEL, VectorName
from privacy.wire.envelope import Envelope
from privacy.wire.messages import SurvivorSet

FORGOTTEN: Final = (
    "threshold: what opens the sum is kept for its round only, so this sum cannot be opened after a restart; "
    "its opening is used up"
)
SUM, OPENED = "sum", "opened"
"""Names of files of the round: bodies of the encrypted sum, and ring elements of the opened one."""
_FILES_MAX: Final = 100_000
"""Silos fetch masks under one running number, which ends here."""


class ThresholdFlow:
    """Rounds with a joint key of all silos, and one server, this one."""

    steps: tuple[str, ...] = STEPS
    unkept: frozenset[str] = frozenset({PARTIAL})

    def __init__(self, state: AggregatorState, storage_bytes_max: int, python: Path | None) -> None:
        """``python``: the interpreter that runs OpenFHE, ``None`` for this one."""
        self._state = state
        self._storage_bytes_max = storage_bytes_max
        self._python = python

    def upload_size(self, current: OpenRound, silo: SiloId, name: str, index: int) -> int:
        """Ciphertexts once all manifests are known, partial decryptions once the sum is; never earlier."""
        step = {BODIES: UPLOAD, MASKS: UPLOAD, PARTIALS: PARTIAL}.get(name)
        if step is None:
            raise Unprocessable(f"{name}: expected {BODIES}, {MASKS} or {PARTIALS}")
        if current.desk.inbox(step, silo) is None:
            raise OutOfOrder(f"{name}: they are not taken yet")
        if not current.desk.is_open(step) and silo not in current.desk.answered(step):
            raise OutOfOrder(f"{name}: they are not taken any more")
        terms = self._terms(current.round.plan)
        return threshold_stretch(terms.row, index, terms.vector_length).half_bytes(terms.row)

    def download(self, current: OpenRound, silo: SiloId, name: str, index: int) -> Blob:
        """Every holder's masks, for every holder: holder h of the key, part p is number h · parts + p."""
        if name != MASKS:
            raise NotFound(f"{name}: expected {MASKS}")
        if current.desk.inbox(PARTIAL, silo) is None:
            raise OutOfOrder(f"{name}: the sum is not out yet")
        terms = self._terms(current.round.plan)
        holders = sorted(current.desk.expected(PARTIAL))
        holder, part = divmod(index, threshold_part_count(terms.row, terms.vector_length))
        if holder >= len(holders):
            raise NotFound(f"{name} {index}: there is no such file")
        return Blob(self._state.parts, (current.ctx, holders[holder], part_name(part, MASKS)))

    async def announce(self, current: OpenRound) -> None:
        """Nobody else admits the round; here it must have terms, and room for what silos send.

        Raises:
            WeakTerms, Unprocessable: the plan makes no such round. TooLarge: the disk is promised already, or
            the vector is longer than masks can be numbered for.
        """
        terms, cohort = self._terms(current.round.plan), len(current.round.plan.cohort)
        half = sum(
            piece.half_bytes(terms.row) for piece in threshold_stretches(terms.row, terms.vector_length)
        )
        with self._state.store.read() as view:
            needed = model_bytes_held(view)
        needed += 3 * cohort * half + half + RING_BYTES * terms.vector_length
        if needed > self._storage_bytes_max:
            raise TooLarge(f"storage: expected at most {self._storage_bytes_max} bytes, got {needed}")
        files = cohort * threshold_part_count(terms.row, terms.vector_length)
        if files > _FILES_MAX:
            raise TooLarge(f"masks: expected at most {_FILES_MAX} files of all silos, got {files}")

    async def recall(self, current: OpenRound) -> None:
        """Nobody else knows anything of the round."""

    async def open(self, current: OpenRound) -> OpenedSum:
        """The five steps, in the order of the round's table."""
        steps = ThresholdSteps(self._state, current, self._terms(current.round.plan))
        commits = await steps.commits()
        closed = await steps.manifests(await steps.reveals(commits))
        current.round.step("close")
        await steps.uploads(closed)
        current.round.step("agree")
        cleared = await self._clear(current, closed, commits.relay)
        files = RoundFiles(self._state.parts, self._state.sums, closed)
        summed = await asyncio.to_thread(files.add, self._state)
        await keep(self._state, current, "record", [summed], "sum_opened", cleared)
        partials = await steps.partials(closed, summed)
        with self._state.store.write() as transaction:
            for silo, partial in partials.partials.items():
                transaction.add_message(current.ctx, silo, partial.envelope)
        await asyncio.to_thread(files.fuse, partials, self._python)
        return OpenedSum(cleared, files.total)

    async def resume(self, round_: Round) -> OpenedSum:
        """Never: what silos sent to open the sum counts in its round only.

        Raises:
            Unprocessable: always.
        """
        raise Unprocessable(FORGOTTEN)

    async def finish(self, ctx: Context, result: Envelope) -> bool:
        """Delete ciphertexts, partial decryptions, and the sum in both forms."""
        await asyncio.to_thread(self._state.parts.scrub, ctx)
        await asyncio.to_thread(self._state.sums.scrub, ctx)
        return True

    def _terms(self, plan: RoundPlan) -> ThresholdTerms:
        state = self._state
        return terms_of(plan, state.me, state.identity.signing.verify_key)

    async def _clear(
        self, current: OpenRound, closed: ManifestsClosed, commits: tuple[Envelope, ...]
    ) -> ClearedCohort:
        """Sign whose updates are summed, and pass the release gate."""
        state, charter = self._state, self._state.held.charter
        manifests = tuple(manifest.envelope.body_digest for manifest in closed.manifests.values())
        own = state.sign(
            SurvivorSet(server=ServerId(state.me), survivors=tuple(closed.manifests), manifests=manifests),
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
        )
        await keep(state, current, "clear", [*commits, own], "cohort_cleared", cleared)
        return cleared


@dataclass(frozen=True)
class RoundFiles:
    """One round's ciphertexts, their sum and what it opens to, on disk; memory holds one part of each."""

    parts: Blobs
    sums: Blobs
    closed: ManifestsClosed

    def add(self, state: AggregatorState) -> Envelope:
        """Write the bodies of the sum; the signed manifest of it. Takes seconds: run it in a thread.

        Raises:
            BadSum, MalformedMessage: a file is not what its silo signed.
        """
        terms, adder = self.closed.terms, Adder(self.closed)
        for piece in threshold_stretches(terms.row, terms.vector_length):
            bodies, _ = adder.total(
                piece.index, self._each(piece.index, BODIES), self._each(piece.index, MASKS)
            )
            self._write(part_name(piece.index, SUM), bodies)
        return adder.sign(state.identity.signing)

    def fuse(self, partials: PartialsClosed, python: Path | None) -> None:
        """Open the sum, once, and lay it on disk cut as every scheme's. Takes seconds: run it in a thread.

        Raises:
            BadSum, MalformedMessage: what came does not open it. WorkerFailed, ConfigurationError: OpenFHE.
        """
        terms = self.closed.terms
        with Worker(terms.row, python) as worker:
            for piece, opened in recut(self._opened(Fuser(partials, worker)), terms.vector_length):
                self._write(part_name(piece.index, OPENED), ring_to_bytes(opened))

    async def total(self, piece: Stretch, vector: VectorName = MODEL) -> Ring:
        """One stretch of the opened sum.

        Raises:
            NotFound: of another vector than the model's, which a joint key does not open.
        """
        if vector != MODEL:
            raise NotFound(f"vector {vector!r}: a round under a joint key has none beside the model's")
        raw = await asyncio.to_thread(
            self.sums.read, self.closed.terms.context, part_name(piece.index, OPENED)
        )
        return ring_from_bytes(raw, piece.length)

    def _opened(self, fuser: Fuser) -> Iterator[Ring]:
        terms = self.closed.terms
        for piece in threshold_stretches(terms.row, terms.vector_length):
            bodies = self.sums.read(terms.context, part_name(piece.index, SUM))
            yield fuser.open(piece.index, bodies, self._each(piece.index, PARTIALS))

    def _each(self, index: int, name: str) -> Iterator[tuple[SiloId, bytes]]:
        for silo in self.closed.manifests:
            yield silo, self.parts.read(self.closed.terms.context, silo, part_name(index, name))

    def _write(self, name: str, raw: bytes) -> None:
        with self.sums.draft() as draft:
            draft.write(raw)
            draft.commit(self.closed.terms.context, name)
