"""``additive`` at the aggregator: it carries signed sets between the share servers, and adds their shares.

It never sees an update: silos upload to the share servers, and tell the aggregator their manifest only.
Where the plan claims validity, silos prove it between frozen sets and survivors (additive_validity.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from aggregator.blob_store import Blob
from aggregator.blobs import checked
from aggregator.charter_change import bring_charter
from aggregator.peers import ServerRefused, ServerUnreachable, ShareServers
from aggregator.received import manifest_kind, open_manifest, open_of_servers, open_offer
from aggregator.round import Round
from aggregator.schemes.additive_validity import PROVE, ValiditySteps
from aggregator.schemes.flow import OpenedSum, admit_submission, keep, wait_until
from aggregator.state import AggregatorState, Noted, OpenRound
from policies.gates import ClearedCohort, admit_plan, admit_update, clear_cohort
from privacy.errors import NotFound, PeerFault, Unprocessable
from privacy.ids import Context, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import Ring, combine
from privacy.secagg.parts import Stretch, part_count
from privacy.secagg.validity.cut import field_part_count, within
from privacy.secagg.validity.encoding import to_ring
from privacy.secagg.validity.field import Field, from_bytes
from privacy.secagg.validity.sharing import accumulate
from privacy.secagg.validity.terms import ValidityTerms, terms_of
from privacy.secagg.vectors import MODEL, Places, VectorName, vectors_of
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import AcceptedSet, OpeningShare, SurvivorSet

R = TypeVar("R")


class AdditiveFlow:
    """Rounds with two or more share servers."""

    steps: tuple[str, ...] = (PROVE,)
    """It opens in rounds with validity only."""
    unkept: frozenset[str] = frozenset()

    def __init__(self, state: AggregatorState, servers: ShareServers) -> None:
        self._state = state
        self._servers = servers
        self._validity = ValiditySteps(state, servers)

    def upload_size(self, current: OpenRound, silo: SiloId, name: str, index: int) -> int:
        """Nothing of an update is sent here."""
        raise Unprocessable(f"{name}: updates go to the share servers of the plan, none of them here")

    def download(self, current: OpenRound, silo: SiloId, name: str, index: int) -> Blob:
        """Nothing is fetched here but models."""
        raise NotFound(f"{name}: there is no such file in a round with share servers")

    async def announce(self, current: OpenRound) -> None:
        """Each share server holds the charter, and passes the plan through its own gate."""
        charter = self._state.held.charter
        if not self._state.brought.issuperset(charter.share_servers):
            self._servers.meet({server: charter.member(server).url for server in charter.share_servers})
            await self._from_servers(
                current.round.plan, lambda server: bring_charter(self._state, self._servers, server)
            )
        await self._from_servers(
            current.round.plan, lambda server: self._servers.offer(server, current.offer)
        )

    async def recall(self, current: OpenRound) -> None:
        """Silos that every server has accepted have answered: their manifests were not stored here yet, and
        they may not send them again. A server that does not say so now says it when the round is closed."""
        plan, charter = current.round.plan, self._state.held.charter
        kind = manifest_kind(plan)

        async def ask(silo: SiloId) -> Envelope | None:
            try:
                shown = await self._from_servers(
                    plan, lambda server: self._servers.manifest(server, plan.context, silo)
                )
            except (ServerRefused, ServerUnreachable):
                return None
            return shown[0] if all(one == shown[0] for one in shown) else None

        unheard = [silo for silo in plan.silos if silo not in current.round.answers]
        for silo, envelope in zip(unheard, await asyncio.gather(*map(ask, unheard)), strict=True):
            if envelope is None:
                continue
            manifest = open_manifest(charter, plan, silo, envelope)
            update = admit_submission(self._state, current, manifest)
            current.round.answered(silo, "manifest")
            current.noted[kind, silo] = Noted(silo, envelope, {"manifest": update.manifest_digest}, manifest)

    async def open(self, current: OpenRound) -> OpenedSum:
        """From answers to the servers' frozen sets, to proofs of validity where the plan claims it, to one
        survivor set, to shares of the one sum."""
        await wait_until(self._state, current, lambda: current.round.complete)
        plan, ctx, charter = current.round.plan, current.ctx, self._state.held.charter
        current.round.step("close")
        sets = await self._from_servers(plan, lambda server: self._servers.close(server, ctx))
        open_of_servers(charter, plan, sets, AcceptedSet, "accepted")
        said = sets if plan.validity is None else await self._validity.verdicts(current, sets)
        signed = await self._from_servers(plan, lambda server: self._servers.agree(server, ctx, said))
        survivors = open_of_servers(charter, plan, signed, SurvivorSet, "survivors")
        current.round.step("agree")
        with self._state.store.read() as view:
            opened = view.opening(ctx) is not None
        cleared = clear_cohort(
            current.admitted, survivors, charter, self._state.held.policy, opened_before=opened
        )
        await self._complete_manifests(current, survivors[0].message)
        await keep(self._state, current, "clear", [*sets, *signed], "cohort_cleared", cleared)
        answers = await self._from_servers(plan, lambda server: self._servers.release(server, ctx, signed))
        shares = open_of_servers(charter, plan, answers, OpeningShare, "opening")
        await keep(self._state, current, "record", answers, "sum_opened", cleared)
        return self._opened(cleared, shares)

    async def resume(self, round_: Round) -> OpenedSum:
        """Fetch the same shares again: the servers released them once, for these survivors."""
        ctx, charter, policy = round_.plan.context, self._state.held.charter, self._state.held.policy
        with self._state.store.read() as view:
            offer = view.messages(ctx, "offer")[self._state.me]
            signed = list(view.messages(ctx, "survivors").values())
            answers = list(view.messages(ctx, "opening").values())
        admitted = admit_plan([policy], *open_offer(charter, offer), charter)
        survivors = open_of_servers(charter, round_.plan, signed, SurvivorSet, "survivors")
        shares = open_of_servers(charter, round_.plan, answers, OpeningShare, "opening")
        # Not a second opening: the recorded one is for exactly these survivors, which is compared.
        cleared = clear_cohort(admitted, survivors, charter, policy, opened_before=False)
        return self._opened(cleared, shares)

    async def finish(self, ctx: Context, result: Envelope) -> bool:
        """Tell every server that the round is over; whether all have scrubbed their shares."""
        servers = self._state.held.charter.share_servers
        told = await asyncio.gather(
            *(self._servers.finish(server, ctx, result) for server in servers), return_exceptions=True
        )
        return all(_has_scrubbed(outcome) for outcome in told)

    def _opened(self, cleared: ClearedCohort, shares: Sequence[Verified[OpeningShare]]) -> OpenedSum:
        ctx = cleared.admitted.context

        async def fetch(server: ServerId, index: int) -> bytes:
            return await self._servers.opening_part(server, ctx, index)

        digests = check_shares(cleared, shares)
        plan = cleared.admitted.plan
        if plan.validity is None:
            return OpenedSum(cleared, Shares(digests, fetch, vectors_of(plan).places(part_count)).total)
        return OpenedSum(cleared, FieldShares(cleared, digests, fetch).total)

    async def _complete_manifests(self, current: OpenRound, agreed: SurvivorSet) -> None:
        """Hold each survivor's manifest as the servers accepted it, before its share can be in a sum.

        A silo answers the servers first and us last. One that crashed in between, or showed us another
        manifest, would otherwise leave evidence that never verifies.

        Raises:
            Unprocessable, NotAllowed, SignatureRejected, MalformedMessage, PolicyRefusal: the server
                shows another one, or one that does not hold.
        """
        plan, charter = current.round.plan, self._state.held.charter
        first, kind = plan.servers[0].server, manifest_kind(plan)
        for silo, digest in zip(agreed.survivors, agreed.manifests, strict=True):
            noted = current.noted.get((kind, silo))
            if noted is not None and noted.envelope.body_digest == digest:
                continue
            envelope = await self._servers.manifest(first, plan.context, silo)
            manifest = open_manifest(charter, plan, silo, envelope)
            if envelope.body_digest != digest:
                raise Unprocessable(f"manifest of {silo}: {first} shows another one than it accepted")
            # Not by the head witnessed here: a silo that showed us alone a further one would end the round.
            admit_update(current.admitted, manifest)
            current.noted[kind, silo] = Noted(silo, envelope, {"manifest": digest}, manifest)

    async def _from_servers(self, plan: RoundPlan, call: Callable[[ServerId], Awaitable[R]]) -> list[R]:
        """The same call to all servers of the plan side by side, answers in the plan's order."""
        return list(await asyncio.gather(*(call(slot.server) for slot in plan.servers)))


FetchPart = Callable[[ServerId, int], Awaitable[bytes]]
"""Part ``index`` of one server's aggregate share, as raw bytes; nothing about it is believed yet."""


@dataclass(frozen=True)
class Shares:
    """Every server's signed list of part digests, and where the parts come from."""

    digests: dict[ServerId, OpeningShare]
    fetch: FetchPart
    places: Places

    async def total(self, piece: Stretch, vector: VectorName = MODEL) -> Ring:
        """One stretch of a vector's sum: all servers' parts, fetched side by side, checked and added.

        Raises:
            Unprocessable: a part is not the one its server signed for.
        """
        place = self.places.place(vector, piece.index)
        raw = await asyncio.gather(*(self.fetch(server, place) for server in self.digests))
        parts = [
            checked(part, share.parts[place], f"opening part {place} of {server}")
            for part, (server, share) in zip(raw, self.digests.items(), strict=True)
        ]
        return await asyncio.to_thread(combine, parts, piece.length)


@dataclass(frozen=True)
class FieldShares:
    """``Shares`` mod p, of updates that are proven valid: their sum is the same integers as in the ring.

    A plan with validity has one vector (``privacy.vector_terms``)."""

    cleared: ClearedCohort
    digests: dict[ServerId, OpeningShare]
    fetch: FetchPart

    async def total(self, piece: Stretch, vector: VectorName = MODEL) -> Ring:
        """One stretch of the sum.

        Raises:
            NotFound: of another vector than the model's. Unprocessable: a part is not the one its server
                signed for, or no sum of valid updates.
            MalformedMessage: a part is not of field elements.
        """
        plan = self.cleared.admitted.plan
        if vector != MODEL:
            raise NotFound(f"vector {vector!r}: a round with validity has none beside the model's")
        terms, contributors = terms_of(plan), len(self.cleared.survivors)
        pieces = []
        for part in within(piece, plan.vector_length):
            raw = await asyncio.gather(*(self.fetch(server, part.index) for server in self.digests))
            shares = [
                from_bytes(
                    checked(share, said.parts[part.index], f"opening part {part.index} of {server}"),
                    part.length,
                )
                for share, (server, said) in zip(raw, self.digests.items(), strict=True)
            ]
            pieces.append(await asyncio.to_thread(_field_sum, shares, part.length, terms, contributors))
        return np.concatenate(pieces)


def _field_sum(shares: Sequence[Field], length: int, terms: ValidityTerms, contributors: int) -> Ring:
    return to_ring(accumulate(iter(shares), length), terms, contributors)


def check_shares(
    cleared: ClearedCohort, shares: Sequence[Verified[OpeningShare]]
) -> dict[ServerId, OpeningShare]:
    """One share from each server of the plan, each over the survivors that were cleared, with all parts.

    Raises:
        Unprocessable: it is not so.
    """
    plan = cleared.admitted.plan
    expected = [slot.server for slot in plan.servers]
    count = part_count if plan.validity is None else field_part_count
    parts = vectors_of(plan).places(count).total
    by_server = {share.message.server: share.message for share in shares}
    if sorted(share.sender for share in shares) != sorted(expected) or len(by_server) != len(expected):
        raise Unprocessable(f"openings: expected one share of each of {', '.join(expected)}")
    for share in shares:
        if share.message.server != share.sender or share.context != plan.context:
            raise Unprocessable(f"opening of {share.sender}: it is another server's, or another round's")
        if share.message.survivors != cleared.survivors_digest:
            raise Unprocessable(f"opening of {share.sender}: it sums over other survivors than were cleared")
        if len(share.message.parts) != parts:
            raise Unprocessable(f"opening of {share.sender}: expected {parts} parts")
    return {server: by_server[server] for server in expected}


def _has_scrubbed(outcome: BaseException | None) -> bool:
    """Whether a server's answer to ``finish`` means that it holds nothing of the round."""
    if outcome is None:
        return True
    if not isinstance(outcome, PeerFault):
        raise outcome
    # A server that never admitted the round has nothing to delete.
    return isinstance(outcome, ServerRefused) and outcome.refused_status == 404
