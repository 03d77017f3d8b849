"""A silo's half of ``additive`` with validity: shares mod p, and a proof that the update keeps its bounds.

docs/protocols.md, Validity on shares; privacy/secagg/validity/silo.py. The proof answers a coin that the
share servers toss when every silo's shares are fixed. What proves (seeds, the encoded update) lives in
memory only and is never written down: a silo that restarts between shares and proof drops out of that round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import OutOfOrder, SealsumError, SignatureRejected, Unprocessable
from privacy.ids import Digest, PartyId
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.validity.agreement import settled, toss_over
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.cut import field_part_count, field_stretches
from privacy.secagg.validity.encoding import from_ring
from privacy.secagg.validity.field import to_bytes
from privacy.secagg.validity.messages import (
    COIN_KINDS,
    CoinCommitment,
    CoinReveal,
    ProofManifest,
    SharesManifest,
)
from privacy.secagg.validity.sharing import Binding
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import terms_of
from privacy.wire.envelope import Envelope, MessageKind, open_envelope, sign_message
from privacy.wire.messages import MAX_BYTES, AcceptedSet, accepted_by_all
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Stored, encode_seed
from silo_agent.schemes.half import Seat, Signed

S = TypeVar("S", AcceptedSet, CoinCommitment, CoinReveal)
PROVE = "prove"


class ValidityHalf:
    """One sharing and one proof of one update."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._terms = terms_of(seat.plan)
        self._digests: list[Digest] = []
        self._half: ValiditySiloHalf | None = None
        self._model: Digest | None = None
        self._encoded: list[NDArray[np.uint32]] = []

    def prepare(self) -> None:
        """Nothing: share servers' keys are in the charter."""

    def agree(self) -> None:
        """Nothing more."""

    def seal(self, update: EncodedUpdate, model: Digest) -> Iterator[bytes]:
        """The vector share's parts; the elements are kept for the proof.

        Raises:
            UpdateOutOfRange: also when the norm of the whole is beyond the plan's; nothing has left then.
        """
        plan = self._seat.plan
        keys = {slot.server: self._seat.charter.member(slot.server).sealing_key for slot in plan.servers}
        binding = Binding(plan.context, self._terms.digest, model, self._seat.silo)
        self._half = ValiditySiloHalf(self._terms, binding, keys)
        self._model = model
        for piece in field_stretches(plan.vector_length):
            encoded = update.elements(piece.start, piece.length)
            part = to_bytes(self._half.share(piece.start, from_ring(encoded)))
            self._encoded.append(encoded)
            self._digests.append(sha256_hex(part))
            yield part
        self._half.commit()

    def manifest(self, ledger_head: Head) -> Signed:
        """The one share's bytes, by digest.

        Raises:
            SealsumError: parts are missing, or were drawn twice: a bug, not a peer's doing.
        """
        plan, half = self._seat.plan, self._half
        whole = len(self._digests) == field_part_count(plan.vector_length)
        if half is None or self._model is None or not whole:
            raise SealsumError("sharing: expected each part to be drawn once before the manifest")
        message = SharesManifest(
            silo=self._seat.silo,
            terms=self._terms.digest,
            model=self._model,
            vector_length=plan.vector_length,
            parts=tuple(self._digests),
            seeds={server: sha256_hex(seed) for server, seed in half.sealed_seeds.items()},
            ledger_head=ledger_head,
        )
        return Signed(
            self._sign(message, "validity_manifest"),
            {server: encode_seed(seed) for server, seed in half.sealed_seeds.items()},
        )

    def deliver(self, stored: Stored) -> None:
        """To all servers at once, then the manifest to the aggregator."""
        self._seat.delivery.to_share_servers(stored, self._seat.plan.servers[0].server)

    def conclude(self, stored: Stored) -> None:
        """Prove, once, when the servers have tossed: the witness to the first server, its manifest to both it
        and the aggregator.

        Raises:
            OutOfOrder: this process did not make the shares, so it cannot prove anything about them.
            PeerFault: the round is over or goes on without us, or what servers said does not hold.
            Unprocessable: a random projection is out of range (for an honest update below 2^-84).
        """
        half, self._half = self._half, None
        encoded, self._encoded = self._encoded, []
        if half is None:
            raise OutOfOrder(
                "prove: the agent restarted after it had shared its update; it drops out of this round"
            )
        plan, delivery = self._seat.plan, self._seat.delivery
        coin = self._settle(delivery.await_step(plan.context, PROVE), stored.contribution.manifest)
        half.open_coin(coin)
        for piece, elements in zip(field_stretches(plan.vector_length), encoded, strict=True):
            half.project(piece.start, from_ring(elements))
        try:
            witness = to_bytes(half.prove())
        except UpdateOutOfRange as unlucky:
            raise Unprocessable(f"prove: {unlucky}") from unlucky
        proof = ProofManifest(
            silo=self._seat.silo,
            shares=stored.contribution.manifest.body_digest,
            coin=coin.digest,
            witness=sha256_hex(witness),
        )
        envelope = self._sign(proof, "validity_proof")
        delivery.prove(plan.context, plan.servers[0].server, witness, envelope)
        delivery.send_step(plan.context, PROVE, [envelope])

    def _settle(self, inbox: Sequence[Envelope], mine: Envelope) -> Coin:
        """Coin 1, worked out here from what every server signed, so that no server can hand us one:

        (1) one accepted set, one commitment and one reveal of each server of the plan, signed for this round;
        (2) what all accepted is what the coin is bound to, and our shares are among it; (3) each value is
        the committed one.

        Raises:
            Unprocessable, SignatureRejected, MalformedMessage, OutOfOrder: it is not so.
        """
        # (1)
        accepted = self._of_servers(inbox, AcceptedSet, "accepted")
        commitments = self._of_servers(inbox, CoinCommitment, COIN_KINDS[1][0])
        reveals = self._of_servers(inbox, CoinReveal, COIN_KINDS[1][1])
        # (2)
        fixed = accepted_by_all(accepted)
        if fixed.get(self._seat.silo) != mine.body_digest:
            raise Unprocessable(
                "coin 1: it is not bound to the shares of this silo; nothing is proven about them"
            )
        # (3)
        return settled(toss_over(self._seat.plan, 1, fixed), commitments, reveals)

    def _of_servers(self, inbox: Sequence[Envelope], model: type[S], kind: MessageKind) -> list[S]:
        plan, charter = self._seat.plan, self._seat.charter
        servers = [PartyId(slot.server) for slot in plan.servers]
        found: dict[PartyId, S] = {}
        for envelope in inbox:
            if envelope.kind != kind:
                continue
            opened = open_envelope(
                envelope,
                model,
                kind=kind,
                context=plan.context,
                verify_key_of=lambda party: charter.member(party).verify_key,
                max_bytes=MAX_BYTES[kind],
            )
            if opened.sender not in servers or opened.message.server != opened.sender:
                raise SignatureRejected(f"{kind}: expected it from a share server in its own name")
            if opened.sender in found:
                raise Unprocessable(f"{kind}: {opened.sender} is there twice")
            found[opened.sender] = opened.message
        missing = ", ".join(server for server in servers if server not in found)
        if missing:
            raise Unprocessable(f"{kind}: expected one of each share server; missing: {missing}")
        return [found[server] for server in servers]

    def _sign(self, message: BaseModel, kind: MessageKind) -> Envelope:
        seat = self._seat
        return sign_message(message, kind, seat.plan.context, seat.silo, seat.identity.signing)
