"""What survivors say that an encrypted sum is: believed where enough of them say the same, and not else.

This server cannot open the sum and does not know which word is right. So any disagreement ends the round, by
name. A survivor that will not open the sum says so, which ends the round as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aggregator.blob_store import Blobs
from aggregator.parts import check_parts, part_name
from aggregator.received import open_from
from aggregator.state import AggregatorState
from privacy.canonical import sha256_hex
from privacy.errors import Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import Ring, ring_from_bytes
from privacy.secagg.he.messages import OpenedSum, parts_to_send
from privacy.secagg.parts import Stretch, part_count
from privacy.secagg.vectors import MODEL, Places, VectorName, vectors_of
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import Refusal

OPENED: Final = "opened"
"""The step, and the name of its files: parts of the opened sum as ring elements."""


@dataclass(frozen=True)
class Agreement:
    """The digests of the opened sum's parts, and who vouches for them."""

    files: Blobs
    context: Context
    silos: tuple[SiloId, ...]
    parts: tuple[Digest, ...]
    places: Places

    def lacking(self) -> list[int]:
        """Parts that nobody's file holds; hashes files, so run it in a thread."""
        return [index for index in range(len(self.parts)) if self._held(index) is None]

    async def total(self, piece: Stretch, vector: VectorName = MODEL) -> Ring:
        """One stretch of a vector's sum.

        Raises:
            Unprocessable: no file is what the silos signed.
        """
        place = self.places.place(vector, piece.index)
        raw = await asyncio.to_thread(self._held, place)
        if raw is None:
            raise Unprocessable(f"opened: part {place} is not the one that the silos signed")
        return ring_from_bytes(raw, piece.length)

    def _held(self, index: int) -> bytes | None:
        for path in self._candidates(index):
            raw = self.files.read(*path)
            if sha256_hex(raw) == self.parts[index]:
                return raw
        return None

    def _candidates(self, index: int) -> Iterator[tuple[str, str, str]]:
        for silo in self.silos:
            path = (self.context, silo, part_name(index, OPENED))
            if self.files.exists(*path):
                yield path


class Hearing:
    """Takes each survivor's word on one sum."""

    def __init__(
        self, state: AggregatorState, plan: RoundPlan, summed: Envelope, survivors: tuple[SiloId, ...]
    ) -> None:
        self._state = state
        self._plan = plan
        self._summed = summed.body_digest
        self._survivors = survivors
        self._places = vectors_of(plan).places(part_count)
        self._refusals: dict[SiloId, Refusal] = {}
        self.words: dict[SiloId, Verified[OpenedSum]] = {}

    @property
    def settled(self) -> bool:
        """Whether nothing that can still come changes how this ends."""
        everybody = len(self.words) == len(self._survivors)
        return everybody or bool(self._refusals) or len(self._sums()) > 1

    async def accept(self, silo: SiloId, messages: Sequence[Envelope]) -> None:
        """Take one survivor's word, in this order:

        (1) it is one message; (2) that the silo does not open the sum, in its own name; or (3) its own word
        on this very sum; (4) and the parts that it has to send are here, byte for byte.

        Raises:
            Unprocessable: (1), (2), (4), or of another sum or length. NotAllowed, SignatureRejected,
                MalformedMessage: not this silo's for this round.
        """
        # (1)
        if len(messages) != 1:
            raise Unprocessable(f"{OPENED} of silo {silo}: expected one message, got {len(messages)}")
        envelope = messages[0]
        # (2)
        if envelope.kind == "refusal":
            charter, ctx = self._state.held.charter, self._plan.context
            refusal = open_from(charter, [silo], envelope, Refusal, "refusal", ctx).message
            if refusal.silo != silo:
                raise Unprocessable(f"refusal.silo: expected {silo}, got {refusal.silo}")
            self._refusals[silo] = refusal
            return
        # (3)
        word = self._open(silo, envelope)
        # (4)
        mine = parts_to_send(self._survivors, silo, len(word.message.parts))
        await self._check(silo, mine, word.message.parts)
        self.words[silo] = word

    async def accept_rest(self, agreement: Agreement, silo: SiloId, messages: Sequence[Envelope]) -> None:
        """Take word that a survivor has sent all parts, also those of survivors that are gone.

        Raises:
            Unprocessable: it has not, or says more than that.
        """
        if messages:
            raise Unprocessable(f"total of silo {silo}: expected no message, got {len(messages)}")
        if await asyncio.to_thread(agreement.lacking):
            raise Unprocessable(f"total of silo {silo}: parts are missing; send them and answer again")

    def believe(self, silo: SiloId, envelope: Envelope) -> None:
        """Take a word from before a restart; its parts are looked for later."""
        self.words[silo] = self._open(silo, envelope)

    def agreement(self) -> Agreement:
        """What enough survivors say alike, in this order:

        (1) none refuses to open the sum; (2) all who answered say the same; (3) they reach the minimum.

        Raises:
            Unprocessable: it is not so; says who.
        """
        # (1)
        for silo, refusal in sorted(self._refusals.items()):
            raise Unprocessable(f"opened: silo {silo} does not open the sum ({refusal.rule})")
        # (2)
        sums = self._sums()
        if len(sums) > 1:
            camps = " against ".join(", ".join(silos) for silos in sums.values())
            raise Unprocessable(f"opened: silos say different sums: {camps}")
        # (3)
        least = max(2, self._plan.min_survivors)
        if len(self.words) < least:
            silent = ", ".join(silo for silo in self._survivors if silo not in self.words)
            raise Unprocessable(
                f"opened: {least} silos must say what the sum is, {len(self.words)} did; silent: {silent}"
            )
        (parts,) = sums
        silos = tuple(sorted(self.words))
        return Agreement(self._state.parts, self._plan.context, silos, parts, self._places)

    def _sums(self) -> dict[tuple[Digest, ...], list[SiloId]]:
        camps: dict[tuple[Digest, ...], list[SiloId]] = {}
        for silo, word in sorted(self.words.items()):
            camps.setdefault(word.message.parts, []).append(silo)
        return camps

    def _open(self, silo: SiloId, envelope: Envelope) -> Verified[OpenedSum]:
        charter, plan = self._state.held.charter, self._plan
        word = open_from(charter, [silo], envelope, OpenedSum, "he_opened", plan.context)
        if silo not in self._survivors or word.message.silo != silo:
            raise Unprocessable(f"opened.silo: expected {silo}, a survivor, got {word.message.silo}")
        if word.message.sum != self._summed:
            raise Unprocessable(f"opened of silo {silo}: it is of another sum than the one handed out")
        if len(word.message.parts) != self._places.total:
            raise Unprocessable(f"opened of silo {silo}: expected {self._places.total} parts")
        return word

    async def _check(self, silo: SiloId, indices: Sequence[int], parts: Sequence[Digest]) -> None:
        names = [part_name(index, OPENED) for index in indices]
        digests = [parts[index] for index in indices]
        await asyncio.to_thread(check_parts, self._state.parts, self._plan.context, silo, names, digests)
