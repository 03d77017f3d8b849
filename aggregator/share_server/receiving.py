"""Taking in one silo's share: parts of the vector or a sealed seed, and the manifest that commits to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from aggregator.blobs import sha256_of
from aggregator.ledger_heads import witness, witnessed_head
from aggregator.parts import check_field_parts, check_parts, part_name
from aggregator.received import manifest_kind, open_manifest
from aggregator.refused_updates import note_refused_update
from aggregator.share_server.phases import follow
from aggregator.share_server.rounds import add_seed
from aggregator.share_server.state import ShareServerState
from policies.findings import PolicyRefusal
from policies.gates import AdmittedPlan, AdmittedUpdate, admit_update
from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import NotAllowed, NotFound, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import unseal_seed
from privacy.secagg.parts import part_count, stretch
from privacy.secagg.validity.cut import field_stretch
from privacy.secagg.validity.messages import SharesManifest
from privacy.secagg.validity.sharing import Binding
from privacy.secagg.validity.sharing import unseal_seed as validity_unseal_seed
from privacy.secagg.validity.terms import terms_of
from privacy.secagg.vectors import vectors_of
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import ShareManifest


class ShareIntake:
    """Receives shares for the rounds that this server has admitted."""

    def __init__(self, state: ShareServerState) -> None:
        self._state = state

    def part_size(self, ctx: Context, silo: SiloId, index: int) -> int:
        """Bytes that part ``index`` of this silo has; asked before a byte of it is read.

        Raises:
            NotFound: no such round. NotAllowed: not invited. Unprocessable: no such part, or not our task.
        """
        plan = self._state.rounds.of(ctx).plan
        self._check_invited(plan, silo)
        if not self._state.is_first(plan):
            raise Unprocessable(f"part: vector shares go to {plan.servers[0].server}, a sealed seed here")
        if plan.validity is not None:
            return field_stretch(index, plan.vector_length).size
        vectors = vectors_of(plan)
        vector, part = vectors.places(part_count).at(index)
        return stretch(part, vectors.lengths[vector]).size

    async def receive_part(
        self, ctx: Context, silo: SiloId, index: int, digest: Digest, body: AsyncIterator[bytes]
    ) -> bool:
        """Store one part of a silo's masked vector; True if it is new, False if these bytes were here.

        Raises:
            OutOfOrder: the round is frozen. Conflict: other bytes came first.
            TooLarge, Unprocessable: see ``Blobs.receive``.
        """
        size = self.part_size(ctx, silo, index)
        with self._state.store.read() as view:
            follow(view.phase(ctx), "part")
        new = await self._state.parts.receive(
            body, digest, sha256_of, ctx, silo, part_name(index), limit=size
        )
        with self._state.store.read() as view:
            if view.phase(ctx) == "finished":
                # The round ended while these bytes arrived: its scrubbing is done again.
                await asyncio.to_thread(self._state.parts.scrub, ctx)
                raise OutOfOrder("round: it ended while this part arrived")
        return new

    async def accept(
        self,
        ctx: Context,
        silo: SiloId,
        envelope: Envelope,
        sealed: bytes | None,
        parts: Sequence[bytes] = (),
    ) -> bool:
        """Accept a silo's share by its manifest; True if it is new. ``parts`` came along with it: unless the
        manifest is here already, each is received first as if it had come by itself. Checks, in this order:

        (1) that silo signed this manifest under this round's context; (2) the very same one is here
        already, or (3) the round is open; (4) the submission gate admits it; (5) every byte it commits to
        is here: all parts at the first server, at another a seed that opens for us; with validity, a seed
        at each server, and parts of elements that are below p.

        Raises:
            SignatureRejected, NotAllowed, MalformedMessage: (1). Conflict: (2), another manifest.
            OutOfOrder: (3). PolicyRefusal: (4). Unprocessable, MalformedMessage: (5). For ``parts`` also
            as ``receive_part``.
        """
        admitted = self._state.rounds.of(ctx)
        plan = admitted.plan
        self._check_invited(plan, silo)
        if parts and not self._is_here(ctx, silo, envelope):
            for index, part in enumerate(parts):
                await self.receive_part(ctx, silo, index, sha256_hex(part), _at_once(part))
        async with self._state.locks[ctx]:
            # (1)
            manifest = open_manifest(self._state.charter, plan, silo, envelope)
            # (2)
            if self._is_here(ctx, silo, envelope):
                return False
            with self._state.store.read() as view:
                # (3)
                phase = follow(view.phase(ctx), "manifest")
                witnessed = witnessed_head(view, admitted, silo)
            # (4)
            update = self._judge(admitted, manifest, witnessed)
            # (5)
            if self._state.is_first(plan):
                await asyncio.to_thread(self._check_parts, plan, manifest.message)
            if self._state.me in manifest.message.seeds:
                self._check_seed(plan, manifest.message, sealed)
            with self._state.store.write() as transaction:
                transaction.add_message(ctx, silo, envelope)
                transaction.set_phase(ctx, phase)
                if self._state.me in manifest.message.seeds and sealed is not None:
                    add_seed(transaction, ctx, silo, sealed)
                witness(transaction, admitted, manifest)
                transaction.record("update_accepted", context=ctx, silo=silo, manifest=update.manifest_digest)
            return True

    def manifest_of(self, ctx: Context, silo: SiloId) -> Envelope:
        """The manifest that was accepted of a silo: the aggregator's evidence needs each survivor's.

        Raises:
            NotFound: no such round, or nothing was accepted of this silo.
        """
        kind = manifest_kind(self._state.rounds.of(ctx).plan)
        with self._state.store.read() as view:
            manifest = view.message(ctx, kind, silo)
        if manifest is None:
            raise NotFound(f"manifest of {silo}: none was accepted in round {ctx[:16]}…")
        return manifest

    def _is_here(self, ctx: Context, silo: SiloId, envelope: Envelope) -> bool:
        """Whether the very same manifest was accepted before; another one, if so, is refused when stored."""
        with self._state.store.read() as view:
            return view.message(ctx, envelope.kind, silo) == envelope

    def _judge(
        self,
        admitted: AdmittedPlan,
        manifest: Verified[ShareManifest] | Verified[SharesManifest],
        witnessed: Head,
    ) -> AdmittedUpdate:
        try:
            return admit_update(admitted, manifest, witnessed)
        except PolicyRefusal as refusal:
            note_refused_update(self._state.store, admitted.context, manifest.sender, refusal)
            raise

    def _check_invited(self, plan: RoundPlan, silo: SiloId) -> None:
        if silo not in plan.silos:
            raise NotAllowed(f"silo {silo}: it is not in this round's cohort")

    def _check_parts(self, plan: RoundPlan, manifest: ShareManifest | SharesManifest) -> None:
        names = [part_name(index) for index in range(len(manifest.parts))]
        check = check_parts if plan.validity is None else check_field_parts
        check(self._state.parts, plan.context, manifest.silo, names, manifest.parts)

    def _check_seed(
        self, plan: RoundPlan, manifest: ShareManifest | SharesManifest, sealed: bytes | None
    ) -> None:
        """Open the seed to know that it opens, and drop it: it is stored sealed only.

        A seed that did not open would otherwise abort the round for everybody.
        """
        key, me = self._state.sealing_key, self._state.me
        if sealed is None:
            raise Unprocessable("sealed_seed: expected one; without it the sum could not be opened")
        if sha256_hex(sealed) != manifest.seeds.get(me):
            raise Unprocessable("sealed_seed: it is not the one the manifest names")
        if plan.validity is None:
            unseal_seed(sealed, key, plan.context, plan.model, manifest.silo, me)
        else:
            binding = Binding(plan.context, terms_of(plan).digest, plan.model, manifest.silo)
            validity_unseal_seed(sealed, key, binding, me)


async def _at_once(raw: bytes) -> AsyncIterator[bytes]:
    yield raw
