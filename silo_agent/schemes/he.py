"""A silo's half of ``bfv`` and ``ckks``: encrypt one update, open one sum, say what it is.

docs/protocols.md, bfv and ckks. A stored contribution is never encrypted again. Which sum is opened is on
disk before its first part is decrypted, so that no crash makes this silo open a second one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from policies.findings import PolicyRefusal
from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import (
    Conflict,
    MalformedMessage,
    NotAllowed,
    PeerFault,
    SealsumError,
    SignatureRejected,
    Unprocessable,
)
from privacy.ids import Digest, PartyId
from privacy.secagg.additive import Ring, ring_to_bytes
from privacy.secagg.he.framing import Form, he_part_count, he_stretches, part_bytes
from privacy.secagg.he.keys import HeKey
from privacy.secagg.he.messages import CiphertextManifest, OpenedSum, SumManifest, parts_to_send
from privacy.secagg.he.silo_half import HeSiloHalf, admit_sum
from privacy.secagg.parts import recut
from privacy.secagg.vectors import NamedVector, vectors_of
from privacy.wire.envelope import Envelope, MessageKind, Verified, open_envelope, sign_message
from privacy.wire.messages import MAX_BYTES, Refusal
from silo_agent.durable import private_directory, write_durably
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Stored
from silo_agent.problems import WentOn
from silo_agent.schemes.half import Seat, Signed
from silo_agent.schemes.he_key import held_key, obtain_key, use_of
from silo_agent.survivors import judge_survivors

M = TypeVar("M", bound=BaseModel)
SUM_OPENED: Final = "sum"
"""File with the digest of the one sum that this silo opens in this round."""
_WORTH_PROCESSES: Final = 1 << 23
"""Elements from which on encryption repays starting processes (2 s of imports each; 0.5 s a million)."""


class HeHalf:
    """One silo in one round."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._use = use_of(seat.plan)
        self._key: HeKey | None = None
        self._model: Digest | None = None
        self._digests: list[Digest] = []

    def prepare(self) -> None:
        """Have the job's key.

        Raises:
            PeerFault, PolicyRefusal: see ``obtain_key``.
        """
        self._key = obtain_key(self._seat)

    def agree(self) -> None:
        """Nothing more."""

    def seal(self, update: EncodedUpdate, model: Digest) -> Iterator[bytes]:
        """The update's ciphertexts, part by part, then those of each further vector."""
        plan = self._seat.plan
        if self._key is None:
            raise SealsumError("encryption: expected the job's key before the update")
        self._model = model
        for vector in vectors_of(plan).vectors:
            workers = (os.cpu_count() or 1) if vector.length >= _WORTH_PROCESSES else 1
            with self._half(self._key, vector, workers) as half:
                for piece in he_stretches(self._use.parameters, vector.length):
                    encoded = update.elements(piece.start, piece.length, vector.name)
                    part = half.encrypt(piece.index, encoded)
                    self._digests.append(sha256_hex(part))
                    yield part

    def manifest(self, ledger_head: Head) -> Signed:
        """The one update's ciphertexts, by digest, and the key that they are under."""
        plan = self._seat.plan
        if self._key is None or self._model is None:
            raise SealsumError("encryption: expected each part to be drawn once before the manifest")
        message = CiphertextManifest(
            silo=self._seat.silo,
            model=self._model,
            parameters=self._use.parameters.name,
            key=self._key.id,
            vector_length=plan.vector_length,
            parts=tuple(self._digests),
            ledger_head=ledger_head,
        )
        signing = self._seat.identity.signing
        return Signed(sign_message(message, "he_manifest", plan.context, self._seat.silo, signing), {})

    def deliver(self, stored: Stored) -> None:
        """Every part, then the manifest that names them."""
        delivery = self._seat.delivery
        for index, part in stored.parts():
            delivery.put_file(stored.context, "parts", index, part)
        delivery.send_step(stored.context, "ciphertexts", [stored.contribution.manifest])

    def conclude(self, stored: Stored) -> None:
        """Open the one sum, say what it is, and send its parts: ours, and the others' if those do not come.

        Raises:
            PeerFault, PolicyRefusal: it is not the sum that this round may open; the aggregator is told
                so and gets nothing.
        """
        delivery = self._seat.delivery
        inbox = delivery.await_step(stored.context, "opened")
        try:
            summed = self._admit(stored, inbox)
            opened = self._open(summed)
        except (MalformedMessage, SignatureRejected, NotAllowed, Conflict, Unprocessable, PolicyRefusal):
            self._decline()
            raise
        mine = parts_to_send(summed.message.survivors, self._seat.silo, len(opened.parts))
        self._send_parts(mine)
        signing = self._seat.identity.signing
        word = sign_message(opened, "he_opened", stored.context, self._seat.silo, signing)
        delivery.send_step(stored.context, "opened", [word])
        try:
            delivery.await_step(stored.context, "total")
        except WentOn:
            return  # everybody has sent theirs
        self._send_parts(range(len(opened.parts)))
        delivery.send_step(stored.context, "total", [])

    def _admit(self, stored: Stored, inbox: Sequence[Envelope]) -> Verified[SumManifest]:
        """Decide whether a sum may be opened here, in this order:

        (1) the aggregator that offered the round signed it, for this round; (2) ``admit_sum``: enough invited
        silos, we among them with the manifest we signed, under our key; (3) each survivor's manifest is
        shown, signed by that silo, and is the one in the sum: from our model, under our key, as long as ours;
        (4) the federation's threat model and our own let these silos be summed.

        Raises:
            Unprocessable, SignatureRejected, NotAllowed, Conflict, MalformedMessage: (1) to (3).
            PolicyRefusal: (4).
        """
        seat = self._seat
        if not inbox:
            raise Unprocessable("sum: expected its manifest and the survivors' manifests, got nothing")
        # (1)
        summed = self._opened_from(inbox[0], SumManifest, "he_sum", seat.aggregator)
        # (2)
        own_envelope = stored.contribution.manifest
        own = CiphertextManifest.model_validate_json(own_envelope.body)
        minimum = seat.plan.min_survivors
        admit_sum(summed.message, own, own_envelope.body_digest, seat.plan.silos, minimum)
        # (3)
        survivors = summed.message.survivors
        if len(inbox) != 1 + len(survivors):
            raise Unprocessable(f"sum: expected {len(survivors)} manifests, got {len(inbox) - 1}")
        ours = (own.model, own.parameters, own.key, own.vector_length, len(own.parts))
        for silo, digest, envelope in zip(survivors, summed.message.manifests, inbox[1:], strict=True):
            one = self._opened_from(envelope, CiphertextManifest, "he_manifest", silo).message
            if envelope.body_digest != digest or one.silo != silo:
                raise Conflict(f"sum.manifests: the one shown of {silo} is not the one in the sum")
            if (one.model, one.parameters, one.key, one.vector_length, len(one.parts)) != ours:
                raise Conflict(f"manifest of {silo}: another model, key, row or length than ours")
        # (4)
        judge_survivors(seat, survivors, summed.message.manifests)
        return summed

    def _open(self, summed: Verified[SumManifest]) -> OpenedSum:
        """Decrypt every part once, and lay the sum on disk cut as in ``privacy.secagg.parts``, in this order:

        (1) no other sum of this round was opened here, which is on disk before we go on; (2) each part is the
        one that the aggregator signed; (3) ``HeSiloHalf.open``'s checks.

        Raises:
            Conflict: (1). Unprocessable, MalformedMessage: (2), (3).
        """
        seat = self._seat
        key = self._key or held_key(seat)
        if key is None:
            raise Unprocessable("key: this silo does not have the job's key any more; it cannot open the sum")
        # (1)
        self._mark(summed.envelope.body_digest)
        digests: list[Digest] = []
        for vector in vectors_of(seat.plan).vectors:
            with self._half(key, vector) as half:
                for _, opened in recut(self._decrypted(half, vector, summed.message), vector.length):
                    part = ring_to_bytes(opened)
                    write_durably(self._part(len(digests)), part)
                    digests.append(sha256_hex(part))
        return OpenedSum(silo=seat.silo, sum=summed.envelope.body_digest, parts=tuple(digests))

    def _decrypted(self, half: HeSiloHalf, vector: NamedVector, summed: SumManifest) -> Iterator[Ring]:
        row, plan = self._use.parameters, self._seat.plan
        places = vectors_of(plan).places(partial(he_part_count, row))
        for piece in he_stretches(row, vector.length):
            place, size = places.place(vector.name, piece.index), part_bytes(row, piece, Form.SUM)
            raw = self._seat.delivery.get_file(plan.context, "sum", place, size)
            # (2)
            if sha256_hex(raw) != summed.parts[place]:
                raise Unprocessable(f"sum, part {place}: its bytes are not the ones signed for")
            # (3)
            yield half.open(piece.index, raw, len(summed.survivors))

    def _mark(self, summed: Digest) -> None:
        """Bind this round, once and for good, to one sum: two would differ by single silos' updates.

        Raises:
            Conflict: it is bound to another.
        """
        private_directory(self._seat.directory.parent)
        marker = private_directory(self._seat.directory) / SUM_OPENED
        if marker.exists():
            if marker.read_text() != summed:
                raise Conflict("sum: this silo has opened another one of this round, and opens none besides")
            return
        write_durably(marker, summed.encode())

    def _send_parts(self, indices: Sequence[int]) -> None:
        for index in indices:
            raw = self._part(index).read_bytes()
            self._seat.delivery.put_file(self._seat.plan.context, "opened", index, raw)

    def _part(self, index: int) -> Path:
        return self._seat.directory / f"opened-{index:05d}"

    def _decline(self) -> None:
        """Tell the aggregator that this sum is not opened here, so that nobody waits for the deadline."""
        refusal = Refusal(
            silo=self._seat.silo,
            rule="sum.refused",
            sentence="The silo does not open this sum.",
            expected="the one sum of the survivors' updates of this round, under the job's key",
            got="another",
            remedy="compare this silo's log with the aggregator's",
        )
        context, signing = self._seat.plan.context, self._seat.identity.signing
        envelope = sign_message(refusal, "refusal", context, self._seat.silo, signing)
        try:
            self._seat.delivery.send_step(context, "opened", [envelope])
        except PeerFault:
            return  # what matters is that nothing was opened; the caller raises the reason

    def _opened_from(
        self, envelope: Envelope, model: type[M], kind: MessageKind, sender: PartyId
    ) -> Verified[M]:
        if envelope.sender != sender:
            raise NotAllowed(f"{kind}: expected it from {sender}, got {envelope.sender}")
        return open_envelope(
            envelope,
            model,
            kind=kind,
            context=self._seat.plan.context,
            verify_key_of=lambda party: self._seat.charter.member(party).verify_key,
            max_bytes=MAX_BYTES[kind],
        )

    def _half(self, key: HeKey, vector: NamedVector, workers: int = 1) -> HeSiloHalf:
        cohort = len(self._seat.plan.cohort)
        return HeSiloHalf(key, self._use, vector.terms, vector.length, cohort, workers)
