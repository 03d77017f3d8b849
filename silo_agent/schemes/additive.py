"""A silo's half of ``additive``: a masked vector for the first share server, a sealed seed for each other.

docs/architecture.md, A round, 2; privacy/secagg/additive.py. Nothing is agreed on before, nothing is left to
do after: the servers go on without the silo.
"""

from __future__ import annotations

from collections.abc import Iterator

from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import SealsumError
from privacy.ids import Digest
from privacy.secagg.additive import AdditiveSiloHalf, ring_to_bytes
from privacy.secagg.parts import part_count, stretches
from privacy.secagg.vectors import vectors_of
from privacy.wire.envelope import sign_message
from privacy.wire.messages import ShareManifest
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Stored, encode_seed
from silo_agent.schemes.half import Seat, Signed


class AdditiveHalf:
    """One sharing of one update. Its seeds live here only and are sealed once."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._digests: list[Digest] = []
        self._half: AdditiveSiloHalf | None = None
        self._model: Digest | None = None

    def prepare(self) -> None:
        """Nothing: share servers' keys are in the charter."""

    def agree(self) -> None:
        """Nothing more."""

    def seal(self, update: EncodedUpdate, model: Digest) -> Iterator[bytes]:
        """The vector shares' parts: the model's, then those of each further vector under its own keys."""
        plan = self._seat.plan
        keys = {slot.server: self._seat.charter.member(slot.server).sealing_key for slot in plan.servers[1:]}
        vectors = vectors_of(plan)
        self._half = AdditiveSiloHalf(plan.context, model, self._seat.silo, keys, tuple(vectors.lengths))
        self._model = model
        for part_of in vectors.parts(stretches):
            name, piece = part_of.vector.name, part_of.piece
            encoded = update.elements(piece.start, piece.length, name)
            part = ring_to_bytes(self._half.share(piece.start, encoded, name))
            self._digests.append(sha256_hex(part))
            yield part

    def manifest(self, ledger_head: Head) -> Signed:
        """The one share's bytes, by digest.

        Raises:
            SealsumError: parts are missing, or were drawn twice: a bug, not a peer's doing.
        """
        plan = self._seat.plan
        whole = len(self._digests) == vectors_of(plan).places(part_count).total
        if self._half is None or self._model is None or not whole:
            raise SealsumError("sharing: expected each part to be drawn once before the manifest")
        sealed = self._half.sealed_seeds
        message = ShareManifest(
            silo=self._seat.silo,
            model=self._model,
            vector_length=plan.vector_length,
            parts=tuple(self._digests),
            seeds={server: sha256_hex(seed) for server, seed in sealed.items()},
            ledger_head=ledger_head,
        )
        signing = self._seat.identity.signing
        return Signed(
            sign_message(message, "manifest", plan.context, self._seat.silo, signing),
            {server: encode_seed(seed) for server, seed in sealed.items()},
        )

    def deliver(self, stored: Stored) -> None:
        """To all servers at once, then the manifest to the aggregator."""
        self._seat.delivery.to_share_servers(stored, self._seat.plan.servers[0].server)

    def conclude(self, stored: Stored) -> None:
        """Nothing: the servers close the round among themselves."""
