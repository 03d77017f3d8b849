"""Who has seen a server's log, and up to where: checkpoints, silos' cosignatures, and offers' view of both.

A silo cosigns a checkpoint only if it extends the one it cosigned before, so cosignatures of enough silos on
one checkpoint say that they have all been shown one history. Nothing here is written by itself: what came is
held until a transaction that happens anyway (``store``). Knows no HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from aggregator.audit_log import AuditLog
from aggregator.store import Writer
from privacy.errors import Conflict, NotFound, SignatureRejected
from privacy.ids import PartyId
from privacy.roster import Charter
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    NoteSignature,
    log_origin,
    open_checkpoint,
    open_cosignature,
    parse_signature_line,
    witness_name,
)
from privacy.transparency.witnessing import (
    Cosigned,
    OfferedLog,
    ServedCheckpoint,
    WitnessedInTurn,
    assert_extends,
    offered_alone,
)

WITNESSED: Final = "witnessed"
_OF_SILO: Final = "silo "
"""Begins the name of the row of a silo's own log."""
"""The row of the newest checkpoint that enough silos have cosigned."""
SHOWN_KEPT: Final = 64
"""Checkpoints that cosignatures are still taken for; a round or two is what a witness needs."""


@dataclass
class _Shown:
    checkpoint: Checkpoint
    cosignatures: dict[PartyId, NoteSignature] = field(default_factory=dict)
    stored: int = 0
    """How many of them are in the log already."""


class Witnesses:
    """One server's. All of it is touched on one event loop only."""

    def __init__(self, log: AuditLog, charter_of: Callable[[], Charter], enough: Callable[[], int]) -> None:
        self._log = log
        self._charter_of = charter_of
        self._enough = enough
        self._shown: dict[int, _Shown] = {}
        self._viewed: Checkpoint | None = None
        self._offered: LogHead | None = None
        self._witnessed: Checkpoint | None = None
        self._silo_logs: dict[tuple[PartyId, str], Checkpoint] = {}
        """By silo and its key: one that is enrolled anew begins a log anew."""
        self._silo_logs_stored: dict[tuple[PartyId, str], Checkpoint] = {}

    def load(self, connection: Connection) -> None:
        """Continue from what was stored: at the start, or where a transaction of ours may not have happened.

        Raises:
            LedgerDamaged: a stored checkpoint is not one that this server signed.
        """
        kept = self._log.kept_checkpoint(connection)
        self._offered = None if kept is None else kept.head
        self._witnessed = self._log.kept_checkpoint(connection, WITNESSED)
        for shown in self._shown.values():
            shown.stored = 0  # entered twice rather than never
        charter = self._charter_of()
        for member in charter.with_role("silo"):
            note, of = self._log.kept_note(connection, _OF_SILO + member.id), (member.id, member.verify_key)
            if note is None:
                continue
            try:
                own = open_checkpoint(note, log_origin(charter.federation, member.id), member.verify_key)
            except SignatureRejected:  # enrolled anew since
                continue
            self._silo_logs[of] = self._silo_logs_stored[of] = own

    def show(self) -> Checkpoint:
        """The newest checkpoint; from here on silos may cosign it."""
        checkpoint = self._log.checkpoint()
        if checkpoint.head.size not in self._shown:
            self._shown[checkpoint.head.size] = _Shown(checkpoint)
            for size in sorted(self._shown)[:-SHOWN_KEPT]:
                del self._shown[size]
        return checkpoint

    def served(self) -> ServedCheckpoint:
        """What whoever asks for the newest checkpoint is told."""
        witnessed = self._witnessed
        return ServedCheckpoint(
            checkpoint=self.show().note(), witnessed=None if witnessed is None else witnessed.note()
        )

    def offer(self, connection: Connection) -> OfferedLog:
        """The view of the log that goes with a round's offer."""
        checkpoint, before, witnessed = self.show(), self._offered, self._witnessed
        self._viewed = checkpoint
        if before is None:
            return offered_alone(checkpoint)
        size = checkpoint.head.size
        return OfferedLog(
            checkpoint=checkpoint.note(),
            since=before,
            consistency=self._log.consistency(connection, before.size, size),
            witnessed=None if witnessed is None else witnessed.note(),
            witnessed_consistency=()
            if witnessed is None
            else self._log.consistency(connection, witnessed.head.size, size),
        )

    def take(self, silo: PartyId, answer: Cosigned) -> WitnessedInTurn:
        """Believe a silo's cosignature, and witness the silo's own log in turn:

        (1) it is on a checkpoint that was shown lately, by the silo's enrolled key; (2) the checkpoint of its
        own log that comes along is signed by it, and does not go back behind the one it sent before; (3) that
        one is cosigned if it is shown to continue the one before, or is the first.

        Raises:
            NotFound, SignatureRejected, MalformedMessage: (1). Conflict, or those again: (2).
            ProofRejected: (3), what is shown proves nothing.
        """
        charter = self._charter_of()
        key = charter.member(silo).verify_key
        # (1)
        shown = self._shown.get(answer.size)
        if shown is None:
            raise NotFound(
                f"cosignature of {silo}: expected one on a checkpoint shown lately, got size {answer.size}; "
                "ask for the newest checkpoint"
            )
        signature = parse_signature_line(answer.cosignature)
        open_cosignature(shown.checkpoint, signature, witness_name(charter.federation, silo), key)
        in_turn = WitnessedInTurn()
        # (2)
        if answer.own is not None:
            own = open_checkpoint(answer.own, log_origin(charter.federation, silo), key)
            before = self._silo_logs.get((silo, key))
            if before is not None and (
                own.head.size < before.head.size
                or (own.head.size == before.head.size and own.head != before.head)
            ):
                raise Conflict(
                    f"log of {silo}: expected it to extend its {before.head.size} entries, got another of "
                    f"{own.head.size}; the silo's state was restored from an older copy, or runs twice"
                )
            in_turn = self._in_turn(own, None if before is None else before.head, answer)  # (3)
            if in_turn.since is None:
                self._silo_logs[silo, key] = own
        shown.cosignatures[silo] = signature
        if len(shown.cosignatures) >= self._enough():
            self._promote(shown)
        return in_turn

    def _in_turn(self, own: Checkpoint, before: LogHead | None, answer: Cosigned) -> WitnessedInTurn:
        """Only what continues all that was seen of a log is cosigned, as silos do with ours (ADR 20)."""
        if before is not None and before != own.head:
            if answer.own_since != before:
                return WitnessedInTurn(since=before)
            assert_extends(own.head, before, answer.own_consistency)
        return WitnessedInTurn(cosignature=self._log.cosign(own, int(time.time())).line())

    def _promote(self, shown: _Shown) -> None:
        size = shown.checkpoint.head.size
        if self._witnessed is None or self._witnessed.head.size <= size:
            signatures = [shown.cosignatures[silo] for silo in sorted(shown.cosignatures)]
            self._witnessed = shown.checkpoint.with_cosignatures(signatures)

    def store(self, transaction: Writer) -> None:
        """Write what has come since, and what this log was shown to be, in the caller's transaction."""
        for size, shown in sorted(self._shown.items()):
            if len(shown.cosignatures) > shown.stored:
                cosigned = sorted(shown.cosignatures)
                transaction.record(
                    "checkpoint_cosigned",
                    size=size,
                    root=shown.checkpoint.head.root,
                    witnesses=cosigned,
                    cosignatures=[shown.cosignatures[silo].line() for silo in cosigned],
                )
                shown.stored = len(shown.cosignatures)
        for (silo, key), own in sorted(self._silo_logs.items(), key=lambda one: one[0]):
            if self._silo_logs_stored.get((silo, key)) != own:
                transaction.record(
                    "silo_log_seen", silo=silo, size=own.head.size, root=own.head.root, checkpoint=own.note()
                )
                self._log.keep_checkpoint(transaction.connection, own, _OF_SILO + silo)
                self._silo_logs_stored[silo, key] = own
        if self._witnessed is not None:
            self._log.keep_checkpoint(transaction.connection, self._witnessed, WITNESSED)

    def offered(self, transaction: Writer) -> None:
        """Note the view that went with an offer, and what came before, in the offer's transaction."""
        if self._viewed is not None:
            self._log.keep_checkpoint(transaction.connection, self._viewed)
            self._offered = self._viewed.head
        self.store(transaction)
