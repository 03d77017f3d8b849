"""What a journal must reach: the entry that its head file names, and those that were written off on the way.

The head file is one record in one sector, written over in place. Knows no signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from privacy.canonical import canonical_bytes, parse_canonical
from privacy.chain import EMPTY, WRITTEN_OFF, Entry, Head, WrittenOff, written_off
from privacy.errors import LedgerDamaged, MalformedMessage

SECTOR: Final = 512
"""Bytes that a disk writes as a whole or not at all; every head fits."""


class Places:
    """Where entries are, and which were written off."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._hashes: dict[int, str] = {}
        self._lost: list[WrittenOff] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """One more, at the end."""
        self._hashes[entry.seq] = entry.hash
        if entry.kind == WRITTEN_OFF:
            self._lost.append(written_off(entry))

    def hold(self, head: Head) -> bool:
        """Whether that entry is here, or was written off."""
        return self._hashes.get(head.seq) == head.hash or any(lost.covers(head) for lost in self._lost)


def assert_reaches(path: Path, entries: Sequence[Entry], places: Places, kept: Head) -> None:
    """Refuse a journal that lacks the entry its head file names.

    Raises:
        LedgerDamaged: it does, or there is no head file beside several entries.
    """
    if kept == EMPTY:
        if len(entries) > 1:
            raise LedgerDamaged(f"{head_path(path)}: expected it beside a ledger of {len(entries)} entries")
        return
    last = entries[-1].seq if entries else EMPTY.seq
    if kept.seq > last:
        raise LedgerDamaged(
            f"{path}: a truncated ledger: expected {kept.seq + 1} entries, got {last + 1}; it was cut or "
            "restored from an older copy, do not train from it; sealsum silo ledger restore takes what is "
            "missing from an export or an evidence pack"
        )
    if not places.hold(kept):
        raise LedgerDamaged(f"{path}: entry {kept.seq} is not the one its head file names")


def head_path(path: Path) -> Path:
    """The file beside a journal."""
    return path.with_suffix(".head")


def record_of(head: Head) -> bytes:
    """What the file holds."""
    return canonical_bytes(head).ljust(SECTOR - 1) + b"\n"


def stored_head(path: Path) -> Head:
    """The witnessed head; a file that was made and not yet written says as little as none."""
    file = head_path(path)
    try:
        raw = file.read_bytes()
        while (again := file.read_bytes()) != raw:  # the agent was writing
            raw = again
    except FileNotFoundError:
        return EMPTY
    if not raw:
        return EMPTY
    try:
        return Head.model_validate(parse_canonical(raw.rstrip(), SECTOR))
    except (MalformedMessage, ValidationError) as error:
        raise LedgerDamaged(f"{head_path(path)}: expected the ledger's head") from error
