"""Files and steps of a round between silos and the aggregator, in schemes with one server. Knows no HTTP.

How large each is, who may fetch it and when, the scheme says; here bytes are counted, digested and stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from aggregator.blob_store import Blob
from aggregator.blobs import sha256_of
from aggregator.parts import part_name
from aggregator.schemes.flow import SchemeFlow
from aggregator.state import AggregatorState, OpenRound, over_or_coming_back
from privacy.errors import NotAllowed, OutOfOrder
from privacy.ids import Context, Digest, SiloId
from privacy.plan import SchemeName
from privacy.wire.envelope import Envelope


class Uploads:
    """What one silo does with files and steps of the open round."""

    def __init__(self, state: AggregatorState, schemes: Mapping[SchemeName, SchemeFlow]) -> None:
        self._state = state
        self._schemes = schemes

    def size(self, ctx: Context, silo: SiloId, name: str, index: int) -> int:
        """Bytes that a file has which this silo may send now; asked before a byte of it is read.

        Raises:
            OutOfOrder: the round is over, or it is not the time. NotAllowed: not this silo's to send.
            Unprocessable: there is no such file in this scheme.
        """
        current = self._open_round(ctx, silo)
        return self._scheme(current).upload_size(current, silo, name, index)

    async def receive(
        self, ctx: Context, silo: SiloId, name: str, index: int, digest: Digest, body: AsyncIterator[bytes]
    ) -> bool:
        """Store a file of a silo; True if it is new, False if these bytes were here.

        Raises:
            as ``size``; Conflict: other bytes came first. TooLarge, Unprocessable: see ``Blobs.receive``.
        """
        limit = self.size(ctx, silo, name, index)
        segments = (ctx, silo, part_name(index, name))
        with self._state.presence.call(silo):
            new = await self._state.parts.receive(body, digest, sha256_of, *segments, limit=limit)
        if self._state.current is None or self._state.current.ctx != ctx:
            if ctx in self._state.coming_back:
                raise over_or_coming_back(self._state, ctx)
            # The round ended while these bytes arrived: its scrubbing is done again.
            await asyncio.to_thread(self._state.parts.scrub, ctx)
            raise OutOfOrder("round: it ended while this file arrived")
        return new

    async def fetch(self, ctx: Context, silo: SiloId, name: str, index: int) -> bytes:
        """A file that the scheme has for this silo.

        Raises:
            OutOfOrder, NotAllowed, NotFound: it has none, or not now, or not for this silo.
        """
        current = self._open_round(ctx, silo)
        blob: Blob = self._scheme(current).download(current, silo, name, index)
        with self._state.presence.call(silo):
            return await blob.fetch()

    async def inbox(
        self, ctx: Context, silo: SiloId, step: str, seconds: float
    ) -> tuple[Envelope, ...] | None:
        """What this silo needs for a step, as soon as the step is open; ``None`` when the time is up.

        Raises:
            OutOfOrder: the round is over. NotFound: there is no such step. NotAllowed: it goes on without it.
        """
        self._open_round(ctx, silo)

        def opened() -> tuple[Envelope, ...] | None:
            return self._open_round(ctx, silo).desk.inbox(step, silo)

        with self._state.presence.call(silo):
            return await self._state.bell.wait_for(opened, seconds)

    def expect(self, ctx: Context, silo: SiloId, step: str) -> None:
        """Whether this silo may answer a step; asked before a byte of its answer is read.

        Raises:
            OutOfOrder: the round is over, or the step has not begun.
            NotFound, NotAllowed: see ``Desk.inbox``.
        """
        if self._open_round(ctx, silo).desk.inbox(step, silo) is None:
            raise OutOfOrder(f"step {step}: it has not begun")

    async def answer(self, ctx: Context, silo: SiloId, step: str, messages: Sequence[Envelope]) -> None:
        """Take a silo's messages of a step.

        Raises:
            OutOfOrder, NotFound, NotAllowed, Conflict: see ``Desk.receive``. PeerFault, PolicyRefusal: the
                scheme does not believe them.
        """
        current = self._open_round(ctx, silo)
        with self._state.presence.call(silo):
            await current.desk.receive(step, silo, messages)
        self._state.bell.ring()

    def _open_round(self, ctx: Context, silo: SiloId) -> OpenRound:
        current = self._state.current
        if current is None or current.ctx != ctx:
            raise over_or_coming_back(self._state, ctx)
        if silo not in current.round.plan.silos:
            raise NotAllowed(f"silo {silo}: it is not in this round's cohort")
        return current

    def _scheme(self, current: OpenRound) -> SchemeFlow:
        return self._schemes[current.round.plan.scheme]
