"""The five steps of threshold encryption at the aggregator: what each waits for, and how it closes.

What a message must be is ``privacy/secagg/threshold``'s to judge. Here each silo's is taken over the desk,
and a step closed once all have answered who still can. In the last two steps every silo is needed, so that
one which will not go on says so and ends the round by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aggregator.blob_store import Blobs
from aggregator.parts import MISSING_NAMED, part_name
from aggregator.received import open_from
from aggregator.schemes.flow import admit_submission
from aggregator.schemes.stepping import Inboxes, Judge, V, collect, one, only_own
from aggregator.state import AggregatorState, Noted, OpenRound
from privacy.canonical import sha256_hex
from privacy.errors import OutOfOrder, Unprocessable
from privacy.ids import SiloId
from privacy.secagg.threshold.collecting import (
    CommitsClosed,
    ManifestsClosed,
    RevealsClosed,
    accept_commit,
    accept_manifest,
    accept_reveal,
    check_upload,
    close_commits,
    close_manifests,
    close_reveals,
)
from privacy.secagg.threshold.messages import CiphertextManifest, KeyCommit, KeyReveal, PartialDecryption
from privacy.secagg.threshold.summing import PartialsClosed, accept_partial, close_partials
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import Refusal

COMMIT, REVEAL, MANIFEST, UPLOAD, PARTIAL = "commit", "reveal", "manifest", "upload", "partial"
STEPS: Final = (COMMIT, REVEAL, MANIFEST, UPLOAD, PARTIAL)
BODIES, MASKS, PARTIALS = "bodies", "masks", "partials"
"""Names of a silo's files: both halves of its ciphertexts, and its partial decryption of the sum."""


@dataclass(frozen=True)
class ThresholdSteps:
    """One round's steps: each opens with what the one before it froze, and closes into what comes next."""

    state: AggregatorState
    current: OpenRound
    terms: ThresholdTerms
    _declined: dict[SiloId, str] = field(default_factory=dict)
    """Who will not go on, by what rule."""

    async def commits(self) -> CommitsClosed:
        """Step 1, of all who were invited."""

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[KeyCommit]:
            return accept_commit(self.terms, one(COMMIT, silo, messages))

        nothing: Inboxes = dict.fromkeys(self.current.round.plan.silos, ())
        return close_commits(self.terms, await self._collect(COMMIT, nothing, judge))

    async def reveals(self, commits: CommitsClosed) -> RevealsClosed:
        """Step 2, of those who committed. Who is in now must stay to the end."""

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[KeyReveal]:
            return await asyncio.to_thread(accept_reveal, commits, one(REVEAL, silo, messages))

        inboxes: Inboxes = dict.fromkeys(commits.commits, commits.relay)
        found = await self._collect(REVEAL, inboxes, judge)
        return await asyncio.to_thread(close_reveals, commits, found)

    async def manifests(self, reveals: RevealsClosed) -> ManifestsClosed:
        """Step 3, of the joint key's holders: digests alone, so that nobody can copy a ciphertext.

        Raises:
            PeerFault: see ``close_manifests``.
        """
        round_ = self.current.round

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[CiphertextManifest]:
            envelope = one(MANIFEST, silo, messages)
            manifest = await asyncio.to_thread(accept_manifest, reveals, envelope)
            round_.check_answer(silo, "manifest")
            update = admit_submission(self.state, self.current, manifest)
            if not self.current.desk.is_open(MANIFEST):
                raise OutOfOrder(f"{MANIFEST}: the step closed while silo {silo}'s was looked at")
            round_.answered(silo, "manifest")
            noted = Noted(silo, manifest.envelope, {"manifest": update.manifest_digest}, manifest)
            self.current.noted["threshold_manifest", silo] = noted
            return manifest

        inboxes: Inboxes = dict.fromkeys(reveals.key.holders, reveals.relay)
        return close_manifests(reveals, await self._collect(MANIFEST, inboxes, judge))

    async def uploads(self, closed: ManifestsClosed) -> None:
        """The ciphertexts themselves: every silo has admitted all manifests, and all its parts are here.

        Raises:
            Unprocessable: somebody's are not, or somebody admits another set; the sum lacks an addend.
        """
        files = self.state.parts

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> None:
            only_own(UPLOAD, silo, messages)
            if messages:
                self._decline(UPLOAD, silo, messages)
            else:
                await asyncio.to_thread(_check_ciphertexts, files, closed, closed.manifests[silo])

        inboxes: Inboxes = dict.fromkeys(closed.key.holders, closed.relay)
        came = await collect(self.state, self.current, UPLOAD, inboxes, judge, lambda: bool(self._declined))
        self._refuse_if_declined(UPLOAD)
        missing = sorted(set(closed.key.holders) - set(came))
        if missing:
            raise Unprocessable(
                f"{UPLOAD}: nothing of {', '.join(missing)}; without them nothing opens, start another round"
            )

    async def partials(self, closed: ManifestsClosed, summed: Envelope) -> PartialsClosed:
        """Step 4, of all holders. Only now may anything come that helps to open.

        Raises:
            Unprocessable: somebody will not open this sum. PeerFault: see ``close_partials``.
        """
        files = self.state.parts

        async def judge(silo: SiloId, messages: Sequence[Envelope]) -> Verified[PartialDecryption] | None:
            envelope = one(PARTIAL, silo, messages)
            if envelope.kind == "refusal":
                self._decline(PARTIAL, silo, messages)
                return None
            partial = accept_partial(closed, summed, envelope)
            await asyncio.to_thread(_check_partials, files, closed, partial)
            return partial

        inboxes: Inboxes = dict.fromkeys(closed.key.holders, (summed, *closed.relay))
        came = await collect(self.state, self.current, PARTIAL, inboxes, judge, lambda: bool(self._declined))
        self._refuse_if_declined(PARTIAL)
        return close_partials(closed, summed, [partial for partial in came.values() if partial is not None])

    async def _collect(self, step: str, inboxes: Inboxes, judge: Judge[V]) -> list[V]:
        return list((await collect(self.state, self.current, step, inboxes, judge)).values())

    def _decline(self, step: str, silo: SiloId, messages: Sequence[Envelope]) -> None:
        charter = self.state.held.charter
        envelope = one(step, silo, messages)
        refusal = open_from(charter, [silo], envelope, Refusal, "refusal", self.current.ctx)
        self._declined[silo] = refusal.message.rule

    def _refuse_if_declined(self, step: str) -> None:
        for silo, rule in sorted(self._declined.items()):
            raise Unprocessable(f"{step}: silo {silo} does not go on ({rule}); without it nothing opens")


def _check_ciphertexts(files: Blobs, closed: ManifestsClosed, manifest: Verified[CiphertextManifest]) -> None:
    """Whether both halves of each part are here, as signed, and polynomials. Reads all: in a thread.

    Raises:
        Unprocessable: some are missing, or others than the manifest names. MalformedMessage: no polynomials.
    """
    ctx, silo = closed.terms.context, SiloId(manifest.sender)
    count = len(manifest.message.bodies)
    for name in (BODIES, MASKS):
        _refuse_missing(files, closed, silo, name, count)
    for index in range(count):
        bodies, masks = (files.read(ctx, silo, part_name(index, name)) for name in (BODIES, MASKS))
        check_upload(manifest, closed.terms, index, bodies, masks)


def _check_partials(files: Blobs, closed: ManifestsClosed, partial: Verified[PartialDecryption]) -> None:
    """Whether each part of a partial decryption is here, as signed. Reads all: in a thread.

    Raises:
        Unprocessable: some are missing, or others than the message names.
    """
    silo, parts = SiloId(partial.sender), partial.message.parts
    _refuse_missing(files, closed, silo, PARTIALS, len(parts))
    for index, digest in enumerate(parts):
        if sha256_hex(files.read(closed.terms.context, silo, part_name(index, PARTIALS))) != digest:
            raise Unprocessable(f"{PARTIALS} of silo {silo}: part {index} here is not the one it signed")


def _refuse_missing(files: Blobs, closed: ManifestsClosed, silo: SiloId, name: str, count: int) -> None:
    ctx = closed.terms.context
    missing = [index for index in range(count) if not files.exists(ctx, silo, part_name(index, name))]
    if missing:
        listed = ", ".join(str(index) for index in missing[:MISSING_NAMED])
        raise Unprocessable(f"{name} of silo {silo}: {len(missing)} missing, send them: {listed}")
