"""The steps between frozen shares and agreed survivors in which silos prove that their updates keep bounds.

The aggregator carries signed messages: two coins between the share servers, the silos' proofs, the servers'
checks of each. Judgement is the servers', each by itself; this module checks what it can so that the evidence
it keeps verifies, and names every silo that is left out. It sees no share of an update and no witness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from aggregator.peers import ShareServers
from aggregator.received import open_from, open_of_servers
from aggregator.schemes.flow import wait_until
from aggregator.state import AggregatorState, OpenRound
from privacy.errors import Unprocessable
from privacy.ids import Digest, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.agreement import assert_proof_fits, passed_everywhere, settled, toss_over
from privacy.secagg.validity.coins import Coin, Step
from privacy.secagg.validity.messages import (
    COIN_KINDS,
    CoinCommitment,
    CoinReveal,
    ProofManifest,
    Verdicts,
)
from privacy.wire.envelope import Envelope
from privacy.wire.messages import AcceptedSet, accepted_by_all

R = TypeVar("R")
PROVE = "prove"
"""The step in which silos that every server accepted answer coin 1."""


class ValiditySteps:
    """Proofs and verdicts of one round at a time."""

    def __init__(self, state: AggregatorState, servers: ShareServers) -> None:
        self._state = state
        self._servers = servers

    async def verdicts(self, current: OpenRound, sets: Sequence[Envelope]) -> list[Envelope]:
        """Every server's verdicts on the silos that proved, from the frozen sets of all servers.

        (1) Candidates: accepted by every server. (2) Coin 1 over their manifests. (3) Candidates prove by the
        deadline, or are left out. (4) Coin 2 over their proofs, as the first server froze them. (5) Each
        server checks each; (6) all judge. (7) What was said is kept, and who is left out is named.

        Raises:
            PeerFault: a server refuses, does not answer, or says what does not fit; or nobody has proven.
            Stopping: the process drains.
        """
        plan, charter = current.round.plan, self._state.held.charter
        # (1)
        accepted = open_of_servers(charter, plan, sets, AcceptedSet, "accepted")
        candidates = {
            SiloId(silo): digest
            for silo, digest in accepted_by_all([one.message for one in accepted]).items()
        }
        # (2)
        first, tossed = await self._toss(current, 1, candidates, sets)
        # (3)
        await self._collect(current, candidates, first, [*sets, *tossed])
        # (4)
        proofs = await self._proofs(current, candidates, first)
        fixed = {silo: envelope.body_digest for silo, envelope in proofs.items()}
        second, tossed_again = await self._toss(current, 2, fixed, list(proofs.values()))
        # (5), (6)
        checks = [check for silo in proofs for check in await self._checked(current, silo)]
        said = await self._from_servers(plan, lambda server: self._servers.judge(server, current.ctx, checks))
        # (7)
        self._keep(current, candidates, second, [*tossed, *proofs.values(), *tossed_again], said)
        return said

    async def _toss(
        self, current: OpenRound, step: Step, fixed: Mapping[SiloId, Digest], over: Sequence[Envelope]
    ) -> tuple[Coin, list[Envelope]]:
        """The coin of a step, and what the servers said to toss it: commitments, then reveals."""
        plan, ctx, charter = current.round.plan, current.ctx, self._state.held.charter
        toss, kinds = toss_over(plan, step, fixed), COIN_KINDS[step]
        committed = await self._from_servers(
            plan, lambda server: self._servers.toss(server, ctx, step, "commit", over)
        )
        commitments = open_of_servers(charter, plan, committed, CoinCommitment, kinds[0])
        revealed = await self._from_servers(
            plan, lambda server: self._servers.toss(server, ctx, step, "reveal", committed)
        )
        reveals = open_of_servers(charter, plan, revealed, CoinReveal, kinds[1])
        coin = settled(toss, [one.message for one in commitments], [one.message for one in reveals])
        await self._from_servers(plan, lambda server: self._servers.settle(server, ctx, step, revealed))
        return coin, [*committed, *revealed]

    async def _collect(
        self, current: OpenRound, candidates: Mapping[SiloId, Digest], coin: Coin, said: Sequence[Envelope]
    ) -> None:
        """Hand candidates what they settle coin 1 from, and wait until they have proven or time is up."""

        async def accept(silo: SiloId, messages: Sequence[Envelope]) -> None:
            if len(messages) != 1:
                raise Unprocessable(f"step {PROVE}: expected one proof, got {len(messages)} messages")
            charter = self._state.held.charter
            proof = open_from(charter, [silo], messages[0], ProofManifest, "validity_proof", current.ctx)
            assert_proof_fits(proof, candidates, coin)

        current.desk.open(PROVE, dict.fromkeys(candidates, said), accept)
        self._state.bell.ring()
        if not await current.desk.take_up(PROVE):
            await wait_until(
                self._state, current, lambda: current.desk.answered(PROVE) == current.desk.expected(PROVE)
            )
        current.desk.close(PROVE)

    async def _proofs(
        self, current: OpenRound, candidates: Mapping[SiloId, Digest], coin: Coin
    ) -> dict[SiloId, Envelope]:
        """The proofs whose witnesses the first server holds, by silo, sorted."""
        charter, ctx = self._state.held.charter, current.ctx
        first = current.round.plan.servers[0].server
        proofs: dict[SiloId, Envelope] = {}
        for envelope in await self._servers.close_proofs(first, ctx):
            proof = open_from(charter, list(candidates), envelope, ProofManifest, "validity_proof", ctx)
            assert_proof_fits(proof, candidates, coin)
            proofs[proof.message.silo] = envelope
        return dict(sorted(proofs.items()))

    async def _checked(self, current: OpenRound, silo: SiloId) -> list[Envelope]:
        """Every server's signed check of one silo, after each server was handed the others' bytes."""
        plan, ctx = current.round.plan, current.ctx
        checks = await self._from_servers(plan, lambda server: self._servers.check(server, ctx, silo))
        raw = await self._from_servers(plan, lambda server: self._servers.check_bytes(server, ctx, silo))
        names = [slot.server for slot in plan.servers]
        await asyncio.gather(
            *(
                self._servers.hand_check(to, ctx, silo, of, said)
                for of, said in zip(names, raw, strict=True)
                for to in names
                if to != of
            )
        )
        return checks

    def _keep(
        self,
        current: OpenRound,
        candidates: Mapping[SiloId, Digest],
        coin: Coin,
        said: Sequence[Envelope],
        verdicts: Sequence[Envelope],
    ) -> None:
        """Evidence of who was left out and why, whatever becomes of the round."""
        plan, charter = current.round.plan, self._state.held.charter
        opened = [
            one.message for one in open_of_servers(charter, plan, verdicts, Verdicts, "validity_verdict")
        ]
        passed = passed_everywhere(opened, candidates)
        if any(one.coin != coin.digest for one in opened):
            raise Unprocessable("verdicts: expected them under the coin tossed over the proofs")
        failed = {
            verdict.silo: verdict.failed
            for one in opened
            for verdict in one.verdicts
            if verdict.failed is not None
        }
        with self._state.store.write() as transaction:
            for envelope in [*said, *verdicts]:
                transaction.add_message(current.ctx, envelope.sender, envelope)
            for silo in candidates:
                if silo not in passed:
                    rule = f"validity.{failed.get(silo, 'not_proven')}"
                    transaction.record("update_refused", context=current.ctx, silo=silo, rules=[rule])

    async def _from_servers(self, plan: RoundPlan, call: Callable[[ServerId], Awaitable[R]]) -> list[R]:
        return list(await asyncio.gather(*(call(slot.server) for slot in plan.servers)))
