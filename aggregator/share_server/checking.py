"""A share server's check of each silo's proof, and its verdict on all of them. Knows no HTTP.

It says one thing about a silo, ever: two checks at two points would show a line through the silo's rows.
It judges by itself from all servers' checks, and signs what it found. That a silo fails says nothing of its
vector but that it is out of bounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from aggregator.blobs import checked, sha256_of
from aggregator.parts import part_name
from aggregator.received import open_from
from aggregator.share_server.fixed import coin_of, proofs_of
from aggregator.share_server.phases import follow
from aggregator.share_server.proving import WITNESS
from aggregator.share_server.rounds import seeds_of
from aggregator.share_server.state import ShareServerState
from privacy.canonical import sha256_hex
from privacy.errors import Conflict, MalformedMessage, NotAllowed, NotFound, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.cut import field_stretches
from privacy.secagg.validity.field import from_bytes
from privacy.secagg.validity.messages import (
    CheckManifest,
    ProofManifest,
    SharesManifest,
    SiloVerdict,
    Verdicts,
    checks_digest,
)
from privacy.secagg.validity.server import CheckShare, UpdateRejected, ValidityServerHalf, judge
from privacy.secagg.validity.sharing import Binding, unseal_seed
from privacy.secagg.validity.terms import terms_of
from privacy.secagg.validity.witness import witness_length
from privacy.wire.envelope import Envelope, Verified

Checks = Mapping[ServerId, Verified[CheckManifest]]
"""Every server's signed check of one silo."""


class Checking:
    """Checks proofs in the rounds that this server has admitted."""

    def __init__(self, state: ShareServerState) -> None:
        self._state = state

    async def check(self, ctx: Context, silo: SiloId) -> Envelope:
        """Compute, store and sign this server's check of a silo; asked again, the same one.

        (1) The same one again, if there is one; (2) both coins are settled and the silo's proof is fixed;
        (3) computed from bytes that are still the ones signed for; (4) on disk before its digest leaves.

        Raises:
            NotFound: no such round, or the silo has not proven. OutOfOrder: (2). Unprocessable: (3).
        """
        plan = self._state.plan_with_validity(ctx)
        async with self._state.locks[ctx]:
            with self._state.store.read() as view:
                # (1)
                known = view.message(ctx, "validity_check", silo)
                if known is not None:
                    return known
                # (2)
                phase = follow(view.phase(ctx), "check")
                coins = (coin_of(view, plan, 1), coin_of(view, plan, 2))
                envelope = view.message(ctx, "validity_proof", silo)
                manifest = view.message(ctx, "validity_manifest", silo)
                sealed = seeds_of(view, ctx).get(silo)
            if envelope is None or manifest is None or sealed is None:
                raise NotFound(f"proof of {silo}: there is none in this round")
            # (3)
            raw = await asyncio.to_thread(
                self._compute,
                plan,
                coins,
                SharesManifest.model_validate_json(manifest.body),
                ProofManifest.model_validate_json(envelope.body),
                sealed,
            )
            # (4)
            with self._state.parts.draft() as draft:
                draft.write(raw)
                await asyncio.to_thread(draft.commit, ctx, silo, check_name(self._state.me))
            check = CheckManifest(
                server=self._state.me,
                silo=silo,
                proof=envelope.body_digest,
                coin=coins[1].digest,
                check=sha256_hex(raw),
            )
            signed = self._state.sign(check, "validity_check", ctx)
            with self._state.store.write() as transaction:
                transaction.add_message(ctx, silo, signed)
                transaction.set_phase(ctx, phase)
            return signed

    async def check_bytes(self, ctx: Context, silo: SiloId) -> bytes:
        """This server's check of a silo.

        Raises:
            NotFound: no such round, or it has not checked that silo.
        """
        with self._state.store.read() as view:
            follow(view.phase(ctx), "check")
            if view.message(ctx, "validity_check", silo) is None:
                raise NotFound(f"check of {silo}: there is none yet")
        return await self._state.parts.fetch(ctx, silo, check_name(self._state.me))

    def check_size(self, ctx: Context, silo: SiloId, server: ServerId) -> int:
        """Bytes of another server's check; asked before a byte of it is read.

        Raises:
            NotFound: no such round. NotAllowed: no such other server or silo. OutOfOrder: not now.
        """
        plan = self._state.plan_with_validity(ctx)
        with self._state.store.read() as view:
            follow(view.phase(ctx), "check")
            proven = proofs_of(view, plan)
        others = {slot.server for slot in plan.servers} - {self._state.me}
        if server not in others or silo not in proven:
            raise NotAllowed(
                f"check of {silo} by {server}: expected another server's, of a silo that has proven"
            )
        return CheckShare.size(terms_of(plan))

    async def receive_check(
        self, ctx: Context, silo: SiloId, server: ServerId, digest: Digest, body: AsyncIterator[bytes]
    ) -> bool:
        """Store another server's check of a silo; True if it is new. Nothing about it is believed yet.

        Raises:
            as ``check_size``. Conflict: other bytes came first. TooLarge, Unprocessable: see
                ``Blobs.receive``.
        """
        size = self.check_size(ctx, silo, server)
        name = check_name(server)
        new = await self._state.parts.receive(body, digest, sha256_of, ctx, silo, name, limit=size)
        with self._state.store.read() as view:
            if view.phase(ctx) == "finished":
                # The round ended while these bytes arrived: its scrubbing is done again.
                await asyncio.to_thread(self._state.parts.scrub, ctx)
                raise OutOfOrder("round: it ended while this check arrived")
        return new

    async def judge(self, ctx: Context, checks: Sequence[Envelope]) -> Envelope:
        """Judge every silo that has proven, and sign what was found; asked again, the same verdicts.

        (1) One check of every server about every such silo, about its proof and under coin 2, ours the one we
        signed; (2) its bytes are the ones signed for; (3) add up and decide, each silo by itself; (4) whoever
        fails is named in the log, with the check that says no.

        Raises:
            Unprocessable, NotAllowed, SignatureRejected, MalformedMessage: (1), (2), naming the server.
            NotFound: (2), bytes are not here. Conflict: judged before by other checks. OutOfOrder: not now.
        """
        plan = self._state.plan_with_validity(ctx)
        async with self._state.locks[ctx]:
            with self._state.store.read() as view:
                known = view.message(ctx, "validity_verdict", self._state.me)
                phase = view.phase(ctx) if known is not None else follow(view.phase(ctx), "judge")
                coin, proofs = coin_of(view, plan, 2), proofs_of(view, plan)
                ours = view.messages(ctx, "validity_check")
            # (1)
            by_silo = self._open_checks(plan, coin, proofs, checks)
            for silo, said in by_silo.items():
                if ours.get(silo) != said[self._state.me].envelope:
                    raise Unprocessable(f"check of {silo} by {self._state.me}: it is not the one signed here")
            if known is not None:
                return _same_checks(known, by_silo)
            # (2), (3)
            verdicts = await asyncio.to_thread(self._judge_all, plan, coin, by_silo)
            signed = self._state.sign(
                Verdicts(server=self._state.me, coin=coin.digest, verdicts=verdicts), "validity_verdict", ctx
            )
            with self._state.store.write() as transaction:
                transaction.add_message(ctx, self._state.me, signed)
                transaction.set_phase(ctx, phase)
                # (4)
                for verdict in verdicts:
                    if verdict.failed is not None:
                        rule = f"validity.{verdict.failed}"
                        transaction.record("update_refused", context=ctx, silo=verdict.silo, rules=[rule])
                transaction.record(
                    "verdicts_signed",
                    context=ctx,
                    passed=[one.silo for one in verdicts if one.failed is None],
                )
            return signed

    def _compute(
        self,
        plan: RoundPlan,
        coins: tuple[Coin, Coin],
        manifest: SharesManifest,
        proof: ProofManifest,
        sealed: bytes,
    ) -> bytes:
        """The silo's shares, part by part, so that memory does not grow with the model."""
        terms, silo, first = terms_of(plan), manifest.silo, self._state.is_first(plan)
        binding = Binding(plan.context, terms.digest, plan.model, silo)
        seed = unseal_seed(sealed, self._state.sealing_key, binding, self._state.me)
        half = ValidityServerHalf(terms, seed, coins, first)
        for piece in field_stretches(plan.vector_length):
            if first:
                name = part_name(piece.index)
                raw = self._read(plan, silo, name, manifest.parts[piece.index])
                half.absorb(piece.start, from_bytes(raw, piece.length))
            else:
                half.absorb(piece.start)
        if not first:
            return half.message().to_bytes()
        witness = self._read(plan, silo, WITNESS, proof.witness)
        return half.message(from_bytes(witness, witness_length(terms))).to_bytes()

    def _read(self, plan: RoundPlan, silo: SiloId, name: str, digest: Digest) -> bytes:
        return checked(self._state.parts.read(plan.context, silo, name), digest, f"{name} of {silo}")

    def _open_checks(
        self, plan: RoundPlan, coin: Coin, proofs: Mapping[SiloId, Digest], checks: Sequence[Envelope]
    ) -> dict[SiloId, Checks]:
        servers = [slot.server for slot in plan.servers]
        found: dict[SiloId, dict[ServerId, Verified[CheckManifest]]] = {silo: {} for silo in proofs}
        for envelope in checks:
            check = open_from(
                self._state.charter, servers, envelope, CheckManifest, "validity_check", plan.context
            )
            body = check.message
            about = (body.server, body.proof, body.coin) == (check.sender, proofs.get(body.silo), coin.digest)
            if not about or body.server in found[body.silo]:
                raise Unprocessable(
                    f"check of {body.silo} by {check.sender}: expected one of each server in its own name, "
                    "about the proof that is fixed here and under the coin tossed over it"
                )
            found[body.silo][body.server] = check
        for silo, said in found.items():
            missing = ", ".join(server for server in servers if server not in said)
            if missing:
                raise Unprocessable(f"checks of {silo}: expected one of each server; missing: {missing}")
        return {silo: found[silo] for silo in sorted(found)}

    def _judge_all(
        self, plan: RoundPlan, coin: Coin, by_silo: Mapping[SiloId, Checks]
    ) -> tuple[SiloVerdict, ...]:
        verdicts = []
        for silo, said in by_silo.items():
            shares = {server: self._share(plan, silo, check) for server, check in said.items()}
            digest = _digest_of(said)
            try:
                judge(terms_of(plan), coin, silo, shares)
            except UpdateRejected as rejected:
                verdicts.append(SiloVerdict(silo=silo, check=digest, failed=rejected.check))
            else:
                verdicts.append(SiloVerdict(silo=silo, check=digest, failed=None))
        return tuple(verdicts)

    def _share(self, plan: RoundPlan, silo: SiloId, check: Verified[CheckManifest]) -> CheckShare:
        server = check.message.server
        raw = self._read(plan, silo, check_name(server), check.message.check)
        try:
            return CheckShare.from_bytes(raw, server, terms_of(plan))
        except MalformedMessage as malformed:
            raise Unprocessable(f"check of {silo} by {server}: {malformed}") from malformed


def check_name(server: ServerId) -> str:
    """File name of a server's check of a silo, beside that silo's parts."""
    return f"check-{server}"


def _digest_of(said: Checks) -> Digest:
    return checks_digest({server: check.envelope.body_digest for server, check in said.items()})


def _same_checks(known: Envelope, by_silo: Mapping[SiloId, Checks]) -> Envelope:
    before = {one.silo: one.check for one in Verdicts.model_validate_json(known.body).verdicts}
    if before != {silo: _digest_of(said) for silo, said in by_silo.items()}:
        raise Conflict("verdicts: this server has judged by other checks in this round; the first ones hold")
    return known
