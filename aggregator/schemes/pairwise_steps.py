"""The five steps of ``pairwise`` at the aggregator: what each waits for, and how it closes into the next.

What a message must be is ``privacy/secagg/pairwise``'s to judge. Here each silo's is taken over the desk, its
sender held to its certificate, and a step closed once all have answered who still can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from aggregator.parts import check_parts, part_name
from aggregator.schemes.flow import admit_submission
from aggregator.schemes.stepping import Inboxes, Judge, collect, one, only_own
from aggregator.state import AggregatorState, Noted, OpenRound
from privacy.errors import OutOfOrder
from privacy.ids import SiloId
from privacy.secagg.pairwise.collecting import (
    KeysClosed,
    MaskedClosed,
    SharesClosed,
    accept_keys,
    accept_masked,
    accept_shares,
    close_keys,
    close_masked,
    close_shares,
)
from privacy.secagg.pairwise.messages import (
    ConsistencySignature,
    KeyAdvert,
    MaskedInput,
    ShareBundle,
    UnmaskShares,
)
from privacy.secagg.pairwise.opening import Agreed, accept_consistency, accept_unmask, close_consistency
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.secagg.pairwise.unmasking import SumHalf
from privacy.wire.envelope import Envelope, Verified

V = TypeVar("V")
Dealt = tuple[SiloId, Mapping[SiloId, Verified[ShareBundle]]]

STEPS: Final = ("keys", "shares", "masked", "consistency", "unmask")
PARTS: Final = "parts"
"""Files of this name are the parts of a silo's masked update."""


@dataclass(frozen=True)
class PairwiseSteps:
    """One round's steps: each opens with what the one before it froze, and closes into what comes next."""

    state: AggregatorState
    current: OpenRound
    terms: PairwiseTerms

    async def keys(self) -> KeysClosed:
        """Step 1, of all who were invited."""

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[KeyAdvert]:
            return await asyncio.to_thread(accept_keys, self.terms, one("keys", silo, messages))

        nothing: Inboxes = dict.fromkeys(self.current.round.plan.silos, ())
        return close_keys(self.terms, await self._collect("keys", nothing, judge))

    async def shares(self, keys: KeysClosed) -> SharesClosed:
        """Step 2, of those whose keys are known."""

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Dealt:
            only_own("shares", silo, messages)
            return await asyncio.to_thread(accept_shares, keys, messages)

        inboxes: Inboxes = dict.fromkeys(keys.adverts, keys.relay)
        return close_shares(keys, await self._collect("shares", inboxes, judge))

    async def masked(self, shares: SharesClosed) -> MaskedClosed:
        """Step 3, of those who dealt. A manifest counts once all its parts are here, byte for byte.

        Raises:
            PeerFault: see ``close_masked``.
        """
        files, ctx, round_ = self.state.parts, self.current.ctx, self.current.round

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[MaskedInput]:
            envelope = one("masked", silo, messages)
            manifest = await asyncio.to_thread(accept_masked, shares, envelope)
            round_.check_answer(silo, "manifest")
            update = admit_submission(self.state, self.current, manifest)
            parts = manifest.message.parts
            names = [part_name(index, PARTS) for index in range(len(parts))]
            await asyncio.to_thread(check_parts, files, ctx, silo, names, parts)
            if not self.current.desk.is_open("masked"):
                raise OutOfOrder(f"masked: the step closed while silo {silo}'s parts were looked at")
            round_.answered(silo, "manifest")
            noted = Noted(silo, manifest.envelope, {"manifest": update.manifest_digest}, manifest)
            self.current.noted["pairwise_masked", silo] = noted
            return manifest

        inboxes: Inboxes = {silo: shares.inbox(silo) for silo in shares.dealers}
        return close_masked(shares, await self._collect("masked", inboxes, judge))

    async def consistency(self, masked: MaskedClosed) -> Agreed:
        """Step 4, of the survivors."""

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[ConsistencySignature]:
            return accept_consistency(masked, one("consistency", silo, messages))

        inboxes: Inboxes = dict.fromkeys(masked.survivors, masked.relay)
        return close_consistency(masked, await self._collect("consistency", inboxes, judge))

    async def unmask(self, agreed: Agreed) -> SumHalf:
        """Step 5, of those who signed. Only now may anything come that takes masks off."""

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[UnmaskShares]:
            return await asyncio.to_thread(accept_unmask, agreed, one("unmask", silo, messages))

        inboxes: Inboxes = dict.fromkeys(agreed.signatures, agreed.relay)
        return await asyncio.to_thread(SumHalf, agreed, await self._collect("unmask", inboxes, judge))

    async def _collect(self, step: str, inboxes: Inboxes, judge: Judge[V]) -> list[V]:
        return list((await collect(self.state, self.current, step, inboxes, judge)).values())
