"""Taking in one silo's share: parts of the vector or a sealed seed, and the manifest that commits to them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from aggregator.blobs import Directory, sha256_of
from aggregator.parts import check_parts, part_name
from aggregator.received import open_from
from aggregator.share_server.phases import follow
from aggregator.share_server.rounds import AdmittedRounds, add_seed
from aggregator.store import Store
from policies.findings import PolicyRefusal
from policies.gates import AdmittedPlan, AdmittedUpdate, admit_update
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import NotAllowed, NotFound, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.keystore import Identity
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.secagg.additive import unseal_seed
from privacy.secagg.parts import stretch, stretches
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import ShareManifest


class ShareIntake:
    """Receives shares for the rounds that this server has admitted."""

    def __init__(
        self,
        identity: Identity,
        charter: Charter,
        store: Store,
        parts: Directory,
        rounds: AdmittedRounds,
        locks: defaultdict[Context, asyncio.Lock],
    ) -> None:
        self._identity = identity
        self._me = ServerId(identity.pin.party)
        self._charter = charter
        self._store = store
        self._parts = parts
        self._rounds = rounds
        self._locks = locks

    def part_size(self, ctx: Context, silo: SiloId, index: int) -> int:
        """Bytes that part ``index`` of this silo has; asked before a byte of it is read.

        Raises:
            NotFound: no such round. NotAllowed: not invited. Unprocessable: no such part, or not our task.
        """
        plan = self._rounds.of(ctx).plan
        self._check_invited(plan, silo)
        if plan.servers[0].server != self._me:
            raise Unprocessable(f"part: vector shares go to {plan.servers[0].server}, a sealed seed here")
        return stretch(index, plan.vector_length).size

    async def receive_part(
        self, ctx: Context, silo: SiloId, index: int, digest: Digest, body: AsyncIterator[bytes]
    ) -> bool:
        """Store one part of a silo's masked vector; True if it is new, False if these bytes were here.

        Raises:
            OutOfOrder: the round is frozen. Conflict: other bytes came first.
            TooLarge, Unprocessable: see ``Directory.receive``.
        """
        size = self.part_size(ctx, silo, index)
        with self._store.read() as view:
            follow(view.phase(ctx), "part")
        new = await self._parts.receive(body, digest, sha256_of, ctx, silo, part_name(index), limit=size)
        with self._store.read() as view:
            if view.phase(ctx) == "finished":
                # The round ended while these bytes arrived: its scrubbing is done again.
                self._parts.scrub(ctx)
                raise OutOfOrder("round: it ended while this part arrived")
        return new

    async def accept(self, ctx: Context, silo: SiloId, envelope: Envelope, sealed: bytes | None) -> bool:
        """Accept a silo's share by its manifest; True if it is new. Checks, in this order:

        (1) that silo signed this manifest under this round's context; (2) the very same one is here
        already, or (3) the round is open; (4) the submission gate admits it; (5) every byte it commits to
        is here: all parts at the first server, at another a seed that opens for us.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: (1). Conflict: (2), another manifest.
            OutOfOrder: (3). PolicyRefusal: (4). Unprocessable, MalformedMessage: (5).
        """
        admitted = self._rounds.of(ctx)
        self._check_invited(admitted.plan, silo)
        async with self._locks[ctx]:
            # (1)
            manifest = open_from(self._charter, [silo], envelope, ShareManifest, "manifest", ctx)
            with self._store.read() as view:
                # (2)
                known = view.message(ctx, "manifest", silo)
                if known is not None and canonical_bytes(known) == canonical_bytes(envelope):
                    return False
                # (3)
                phase = follow(view.phase(ctx), "manifest")
            # (4)
            update = self._judge(admitted, manifest)
            # (5)
            if admitted.plan.servers[0].server == self._me:
                names = [part_name(piece.index) for piece in stretches(admitted.plan.vector_length)]
                await asyncio.to_thread(check_parts, self._parts, ctx, silo, names, manifest.message.parts)
            else:
                self._check_seed(admitted.plan, manifest.message, sealed)
            with self._store.write() as transaction:
                transaction.add_message(ctx, silo, envelope)
                transaction.set_phase(ctx, phase)
                if admitted.plan.servers[0].server != self._me and sealed is not None:
                    add_seed(transaction, ctx, silo, sealed)
                transaction.record("update_accepted", context=ctx, silo=silo, manifest=update.manifest_digest)
            return True

    def manifest_of(self, ctx: Context, silo: SiloId) -> Envelope:
        """The manifest that was accepted of a silo: the aggregator's evidence needs each survivor's.

        Raises:
            NotFound: no such round, or nothing was accepted of this silo.
        """
        with self._store.read() as view:
            view.phase(ctx)
            manifest = view.message(ctx, "manifest", silo)
        if manifest is None:
            raise NotFound(f"manifest of {silo}: none was accepted in round {ctx[:16]}…")
        return manifest

    def _judge(self, admitted: AdmittedPlan, manifest: Verified[ShareManifest]) -> AdmittedUpdate:
        try:
            return admit_update(admitted, manifest)
        except PolicyRefusal as refusal:
            with self._store.write() as transaction:
                rules = [finding.rule for finding in refusal.findings]
                transaction.record(
                    "update_refused", context=admitted.context, silo=manifest.sender, rules=rules
                )
            raise

    def _check_invited(self, plan: RoundPlan, silo: SiloId) -> None:
        if silo not in plan.silos:
            raise NotAllowed(f"silo {silo}: it is not in this round's cohort")

    def _check_seed(self, plan: RoundPlan, manifest: ShareManifest, sealed: bytes | None) -> None:
        """Open the seed to know that it opens, and drop it: it is stored sealed only.

        A seed that did not open would otherwise abort the round for everybody.
        """
        key = self._identity.sealing
        assert key is not None  # noqa: S101 - the keystore loads one for every share server
        if sealed is None:
            raise Unprocessable("sealed_seed: expected one; only the first server takes parts instead")
        if sha256_hex(sealed) != manifest.seeds.get(self._me):
            raise Unprocessable("sealed_seed: it is not the one the manifest names")
        unseal_seed(sealed, key, plan.context, plan.model, manifest.silo, self._me)
