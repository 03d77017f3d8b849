"""This silo as a witness of servers' logs: it cosigns a checkpoint only if it continues what it saw before.

Two silos that a server shows two histories cosign different ones; as it needs enough cosignatures on one
checkpoint, and shows them with each offer, neither history gets far (docs/logs.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from policies.findings import Finding, PolicyRefusal
from privacy.errors import MalformedMessage, PeerFault, ProofRejected
from privacy.ids import PartyId
from privacy.keystore import Identity
from privacy.roster import Charter
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    cosign,
    log_origin,
    open_checkpoint,
    witness_name,
    witnesses_of,
)
from privacy.transparency.witnessing import (
    Cosigned,
    OfferedLog,
    ProvenConsistency,
    ServedCheckpoint,
    WitnessedInTurn,
    assert_extends,
)
from silo_agent.ledger.books import Books
from silo_agent.log import SiloLog
from silo_agent.own_log_witnessed import keep_cosignature, proof_since
from silo_agent.transport import FederationClient
from silo_agent.witness_memory import KEPT, WitnessMemory

_log = logging.getLogger(__name__)
_ANSWER_BYTES_MAX: Final = 1 << 18

Prove = Callable[[LogHead, LogHead], Sequence[str]]
"""Asks the log's owner for the consistency proof between two heads."""


@dataclass(frozen=True)
class Sighting:
    """A checkpoint that continues everything this silo has seen of that log: it may be cosigned."""

    owner: PartyId
    checkpoint: Checkpoint
    owner_key: str
    """By which the owner signs, also as a witness of our log."""


class Witness:
    """One silo's."""

    def __init__(self, state_dir: Path, identity: Identity, books: Books) -> None:
        """Open the silo's own log and what it has cosigned.

        Raises:
            LedgerDamaged: see ``SiloLog``. SealsumError: see ``WitnessMemory``.
        """
        self._identity = identity
        self._memory = WitnessMemory(state_dir / "witness.json", books.heads_seen())
        self.log = SiloLog(state_dir, identity.pin.federation, identity.pin.party, identity.signing)
        self.log.record("started", {"silo": identity.pin.party})
        self._delivered: dict[PartyId, LogHead] = {}

    def close(self) -> None:
        """Release the log."""
        self.log.close()

    def judge(
        self, offered: OfferedLog, owner: PartyId, charter: Charter, enough: int, client: FederationClient
    ) -> Sighting:
        """Decide whether an offer's view of the aggregator's log may be believed:

        (1) its owner signed the checkpoint; (2) it continues the one this silo cosigned last; (3) if it shows
        a witnessed checkpoint, silos of the roster signed that, and the new one continues it; (4) at least
        ``enough`` silos did, and it is no older than what this silo cosigned two offers ago. A silo that has
        cosigned fewer than two checkpoints of this log is exempt from (4), since nobody may have yet.

        Raises:
            SignatureRejected, MalformedMessage: (1), or a forged cosignature in (3).
            PolicyRefusal: ``witness.rolled_back``, ``witness.inconsistent``, ``witness.split_view`` or, once
                the checkpoint is cosigned nevertheless, ``witness.too_few``.
        """
        origin, key = log_origin(charter.federation, owner), charter.member(owner).verify_key
        self._memory.meet(origin)
        # (1)
        checkpoint = open_checkpoint(offered.checkpoint, origin, key)
        sighting = Sighting(owner, checkpoint, key)
        # (2)
        heads = self._memory.heads(origin)

        def prove(last: LogHead, head: LogHead) -> Sequence[str]:
            return offered.consistency if offered.since == last else _ask_for_proof(client, last, head)

        if heads:
            self._assert_continues(checkpoint, heads[-1], prove)
        # (3)
        shown, size = frozenset[PartyId](), -1
        if offered.witnessed is not None:
            witnessed = open_checkpoint(offered.witnessed, origin, key)
            silos = {PartyId(silo): charter.member(silo).verify_key for silo in charter.silos}
            shown, size = witnesses_of(witnessed, charter.federation, silos), witnessed.head.size
            try:
                assert_extends(checkpoint.head, witnessed.head, offered.witnessed_consistency)
            except ProofRejected as error:
                raise self._refusal("split_view", checkpoint, str(error)) from error
        # (4)
        if len(heads) >= KEPT and (len(shown) < enough or size < heads[0].size):
            # Said to the others all the same: if enough silos say it, the next offer can show that.
            self.attest(sighting, client, durably=True)
            got = f"{len(shown)} on a checkpoint of {max(size, 0)} entries"
            raise self._refusal("too_few", checkpoint, got, f"{enough} on one of {heads[0].size} or more")
        return sighting

    def attest(self, sighting: Sighting, client: FederationClient, *, durably: bool) -> None:
        """Cosign, and tell the owner; ``durably`` unless an entry of the ledger on disk names the head.

        A cosignature that does not arrive is no fault of the round: its owner lacks it, and others see that.
        """
        checkpoint, pin = sighting.checkpoint, self._identity.pin
        self._memory.remember(checkpoint.origin, checkpoint.head, durably=durably)
        name = witness_name(pin.federation, pin.party)
        line = cosign(checkpoint, name, self._identity.signing, int(time.time())).line()
        own = self.log.checkpoint()
        try:
            self._hand_over(sighting, line, own, self._delivered.get(sighting.owner), client)
        except PeerFault as error:
            _log.warning("cosignature_not_taken", extra={"log": checkpoint.origin, "reason": str(error)})

    def _hand_over(
        self,
        sighting: Sighting,
        line: str,
        own: Checkpoint,
        since: LogHead | None,
        client: FederationClient,
        *,
        last: bool = False,
    ) -> None:
        """Our cosignature, and our own log's checkpoint if it has grown, which the server cosigns in turn.

        A server that saw another head of it last, as after a restart of ours, says so: it is shown the way
        from that one. Where our log never had such a head there is nothing to show.
        """
        grown = since != own.head
        proof = () if since is None or not grown else proof_since(self.log, since, own.head)
        answer = Cosigned(
            size=sighting.checkpoint.head.size,
            cosignature=line,
            own=own.note() if grown else None,
            own_since=since if grown else None,
            own_consistency=proof,
        )
        raw = client.post_json("/v1/log/cosignatures", answer.model_dump(mode="json"))
        self._delivered[sighting.owner] = own.head
        try:
            in_turn = WitnessedInTurn.model_validate_json(raw or b"{}")
        except ValidationError as error:
            raise MalformedMessage("cosignature: expected one in turn, got something else") from error
        if in_turn.cosignature is not None:
            name = witness_name(self._identity.pin.federation, sighting.owner)
            keep_cosignature(self.log.directory, own, in_turn.cosignature, name, sighting.owner_key)
        elif in_turn.since is not None and not last and self.log.began_with(in_turn.since):
            self._hand_over(sighting, line, own, in_turn.since, client, last=True)

    def visit(self, owner: PartyId, charter: Charter, client: FederationClient) -> None:
        """Ask a server for the newest checkpoint of its log, and cosign it if it continues the last one.

        A server that shows none is only noted: what it hides now it must continue when it is asked next.

        Raises:
            PolicyRefusal: ``witness.rolled_back``, ``witness.inconsistent`` or ``witness.split_view``.
            SignatureRejected, MalformedMessage: it is not the server's own checkpoint.
        """
        origin = log_origin(charter.federation, owner)
        try:
            raw = client.get_bytes("/v1/log/checkpoint", limit=_ANSWER_BYTES_MAX)
        except PeerFault as error:
            _log.warning("log_not_shown", extra={"log": origin, "reason": str(error)})
            return
        try:
            note = ServedCheckpoint.model_validate_json(raw).checkpoint
        except ValidationError as error:
            raise MalformedMessage(f"log {origin}: expected a checkpoint, got something else") from error
        checkpoint = open_checkpoint(note, origin, charter.member(owner).verify_key)
        heads = self._memory.heads(origin)
        if heads:
            self._assert_continues(
                checkpoint, heads[-1], lambda last, head: _ask_for_proof(client, last, head)
            )
        self.attest(Sighting(owner, checkpoint, charter.member(owner).verify_key), client, durably=True)

    def _assert_continues(self, checkpoint: Checkpoint, last: LogHead, prove: Prove) -> None:
        head = checkpoint.head
        if head.size < last.size:
            got = f"a checkpoint of {head.size} entries, after one of {last.size}"
            raise self._refusal("rolled_back", checkpoint, got)
        if head.size == last.size:
            if head != last:
                raise self._refusal("split_view", checkpoint, f"two roots of {head.size} entries")
            return
        try:
            assert_extends(head, last, prove(last, head))
        except ProofRejected as error:
            raise self._refusal("inconsistent", checkpoint, str(error)) from error

    def _refusal(self, what: str, checkpoint: Checkpoint, got: str, expected: str = "") -> PolicyRefusal:
        rule = f"witness.{what}"
        self.log.record(
            "witness_refused", {"log": checkpoint.origin, "rule": rule, "checkpoint": checkpoint.note()}
        )
        sentence, wanted, remedy = _WORDS[what]
        return PolicyRefusal("offer", [Finding(rule, sentence, expected or wanted, got, remedy)])


_COMPARE: Final = (
    "stop working with this server until its owner explains; compare checkpoints with the other silos, "
    "and keep this silo's log: it holds the checkpoint that was shown"
)
_WORDS: Final = {
    "rolled_back": (
        "A server's log is shorter than it was: its database was restored, or entries are gone.",
        "a log that is at least as long as the one this silo cosigned",
        _COMPARE,
    ),
    "inconsistent": (
        "A server's log does not continue the one that this silo cosigned: its history was rewritten.",
        "a proof that the new checkpoint extends the cosigned one",
        _COMPARE,
    ),
    "split_view": (
        "A server shows different silos different logs.",
        "one history for everybody",
        _COMPARE,
    ),
    "too_few": (
        "Too few silos have cosigned the aggregator's log to know that all see the same one.",
        "cosignatures of enough silos",
        "let the next round begin when more silos are there; this silo has cosigned what it was shown",
    ),
}


def _ask_for_proof(client: FederationClient, last: LogHead, head: LogHead) -> Sequence[str]:
    asked = {"from": str(last.size), "to": str(head.size)}
    raw = client.get_bytes("/v1/log/consistency", limit=_ANSWER_BYTES_MAX, params=asked)
    try:
        return ProvenConsistency.model_validate_json(raw).proof
    except ValidationError as error:
        raise MalformedMessage("log: expected a consistency proof, got something else") from error
