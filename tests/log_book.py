"""A party's log for tests: written as its owner writes it, shown and cosigned as owners and witnesses do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    cosign,
    log_origin,
    sign_checkpoint,
    witness_name,
)
from privacy.transparency.leaf import Record, new_record
from privacy.transparency.merkle import Frontier, consistency_proof, place_of
from privacy.transparency.witnessing import OfferedLog, offered_alone
from sealsum.served_log import ServedLog

AT = "2026-01-02T03:04:05Z"


@dataclass
class LogBook:
    """Entries and the tree over them; ``witnessed`` is what silos have cosigned last."""

    federation: str
    party: str
    key: SigningKey
    entries: list[Record] = field(default_factory=list)
    witnessed: Checkpoint | None = None
    offered: LogHead | None = None
    _frontiers: list[Frontier] = field(default_factory=lambda: [Frontier()])
    _nodes: list[tuple[bytes, ...]] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return log_origin(self.federation, PartyId(self.party))

    def add(self, kind: str, **body: Any) -> Record:
        entry = new_record(len(self.entries), AT, kind, body, os.urandom(16 * len(body)))
        return self.put(entry)

    def put(self, entry: Record) -> Record:
        frontier, completed = self._frontiers[-1].append(entry.leaf_hash(self.origin))
        self.entries.append(entry)
        self._frontiers.append(frontier)
        self._nodes.append(completed)
        return entry

    def head_at(self, size: int) -> LogHead:
        return LogHead(size=size, root=Digest(self._frontiers[size].root.hex()))

    @property
    def head(self) -> LogHead:
        return self.head_at(len(self.entries))

    def checkpoint(self, size: int | None = None) -> Checkpoint:
        return sign_checkpoint(self.origin, self.head if size is None else self.head_at(size), self.key)

    def consistency(self, first: int, second: int) -> tuple[Digest, ...]:
        proof = consistency_proof(first, second, lambda level, i: self._nodes[place_of(level, i)][level])
        return tuple(Digest(one.hex()) for one in proof)

    def offer(self) -> OfferedLog:
        """The view of itself that goes with an offer."""
        checkpoint, before = self.checkpoint(), self.offered
        self.offered = checkpoint.head
        if before is None:
            return offered_alone(checkpoint)
        return OfferedLog(
            checkpoint=checkpoint.note(),
            since=before,
            consistency=self.consistency(before.size, checkpoint.head.size),
            witnessed=self.witnessed.note() if self.witnessed else None,
            witnessed_consistency=()
            if self.witnessed is None
            else self.consistency(self.witnessed.head.size, checkpoint.head.size),
        )

    def cosign(self, head: LogHead, witnesses: Iterable[tuple[str, SigningKey]]) -> None:
        """Have silos cosign the checkpoint of ``head``; it becomes the witnessed one."""
        lines = [
            cosign(
                self.checkpoint(head.size), witness_name(self.federation, PartyId(name)), key, 1_700_000_000
            )
            for name, key in witnesses
        ]
        self.witnessed = self.checkpoint(head.size).with_cosignatures(lines)

    def beginning(self, size: int) -> LogBook:
        """A log of its first entries, shown to nobody yet."""
        book = LogBook(self.federation, self.party, self.key)
        for entry in self.entries[:size]:
            book.put(entry)
        return book

    def rewritten(self, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> LogBook:
        """A log with other bodies, as ``change(kind, body)`` gives them; the others stay as they are."""
        book = LogBook(self.federation, self.party, self.key, witnessed=self.witnessed)
        for entry in self.entries:
            body = change(entry.kind, entry.body)
            if body == entry.body:
                book.put(entry)
            else:
                book.add(entry.kind, **body)
        return book

    def lines(self) -> bytes:
        return b"".join(entry.line() + b"\n" for entry in self.entries)

    def served(self) -> ServedLog:
        witnessed = None if self.witnessed is None else self.witnessed.note()
        return ServedLog(self.lines(), self.checkpoint().note(), witnessed)
