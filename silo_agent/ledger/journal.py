"""An append-only file of signed, hash-chained entries that survives ``kill -9`` and a power cut at any write.

One canonical entry a line, fsynced before ``append`` returns. Beside it a head file names the last
entry, so that a journal restored from an older copy is recognised. Knows nothing of budgets.

    <name>.jsonl   the entries          <name>.head   {"hash","seq"} of the last entry that returned

The head is one record in one sector, written over in place: a disk keeps the old one or the new one. It need
not be as durable as the entries: an older head names an entry that is there, and passes.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from privacy.canonical import canonical_bytes, parse_canonical
from privacy.chain import EMPTY, MAX_ENTRY_BYTES, Entry, Head, next_entry, parse_entry, verify_entries
from privacy.errors import ConfigurationError, LedgerDamaged, MalformedMessage, SealsumError
from privacy.identity import SigningKey
from silo_agent.durable import private_directory, sync_directory

_log = logging.getLogger(__name__)

_SECTOR = 512
"""Bytes that a disk writes as a whole or not at all; every head fits."""


class Journal:
    """The one writer of a journal. A second process that opens the same file is refused."""

    def __init__(self, path: Path, origin: str, key: SigningKey) -> None:
        """Open and verify, in this order:

        (1) take the lock; (2) drop a torn last line, which nobody was told about; (3) verify every link
        and signature; (4) refuse a journal that lacks the entry its head file names.

        Raises:
            ConfigurationError: another process holds the journal. LedgerDamaged: (3), (4).
        """
        self.path = path
        self._origin = origin
        self._key = key
        self._failed = False
        private_directory(path.parent)
        created = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._head: int | None = None
        try:
            self._lock()  # (1)
            if created:
                sync_directory(path.parent)
            raw = path.read_bytes()
            whole = _whole_lines(raw)
            if len(whole) < len(raw):  # (2)
                _log.warning(
                    "ledger_torn_tail", extra={"path": str(path), "dropped_bytes": len(raw) - len(whole)}
                )
                os.ftruncate(self._descriptor, len(whole))
                os.fsync(self._descriptor)
            self._size = len(whole)
            self._entries = _verified(whole, path, origin, key.verify_key)  # (3), (4)
            self._hashes = {entry.seq: entry.hash for entry in self._entries}
            self._head = os.open(_head_path(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            sync_directory(path.parent)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"{self.path}: another process has this ledger open; stop that agent first"
            ) from error

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, verified, in order."""
        return tuple(self._entries)

    @property
    def head(self) -> Head:
        """The last entry, as others witness it."""
        return self._entries[-1].head if self._entries else EMPTY

    def holds(self, head: Head) -> bool:
        """Whether that entry is in it."""
        return self._hashes.get(head.seq) == head.hash

    def append(self, kind: str, body: dict[str, Any], now: datetime, *, head_durably: bool = True) -> Entry:
        """Sign and store one entry; it is on disk when this returns, with ``head_durably`` its head too.

        Raises:
            SealsumError: the disk refused. The journal takes no more entries until it is opened anew,
                because after a failed fsync nobody knows what is on disk.
        """
        if self._failed:
            raise SealsumError(f"{self.path}: an earlier write failed; restart the agent")
        at = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = next_entry(self.head, self._origin, at, kind, body, self._key)
        line = canonical_bytes(entry) + b"\n"
        try:
            self._write(line)
            self._entries.append(entry)
            self._hashes[entry.seq] = entry.hash
            self._size += len(line)
            self._write_head(entry.head, head_durably)
        except OSError as error:
            self._failed = True
            raise SealsumError(f"{self.path}: cannot be written ({error.strerror}); free the disk") from error
        return entry

    def _write(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += os.write(self._descriptor, line[written:])
        os.fsync(self._descriptor)

    def _write_head(self, head: Head, durably: bool) -> None:
        if self._head is None or os.pwrite(self._head, _record(head), 0) != _SECTOR:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(_head_path(self.path)))
        if durably:
            os.fsync(self._head)

    def close(self) -> None:
        """Release the lock."""
        if self._head is not None:
            os.close(self._head)
            self._head = None
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path, origin: str, verify_key: str) -> tuple[Entry, ...]:
    """Verify a journal without opening it for writing, so that it may be read while an agent runs.

    Raises:
        ConfigurationError: there is none. LedgerDamaged: as ``Journal``.
    """
    try:
        # The head first: entries that follow meanwhile only make the journal longer.
        head = _stored_head(path)
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no such ledger; nothing was trained on this dataset") from error
    return tuple(_verified(_whole_lines(raw), path, origin, verify_key, head))


def _whole_lines(raw: bytes) -> bytes:
    """Everything up to the last line end: an entry without one was never confirmed to anybody."""
    return raw[: raw.rfind(b"\n") + 1]


def _verified(
    whole: bytes, path: Path, origin: str, verify_key: str, head: Head | None = None
) -> list[Entry]:
    lines = whole.split(b"\n")[:-1]
    if any(len(line) > MAX_ENTRY_BYTES for line in lines):
        raise LedgerDamaged(f"{path}: expected entries of at most {MAX_ENTRY_BYTES} bytes")
    entries = list(verify_entries((parse_entry(line) for line in lines), origin, verify_key))
    witnessed = _stored_head(path) if head is None else head
    if witnessed == EMPTY and len(entries) > 1:
        raise LedgerDamaged(f"{_head_path(path)}: expected it beside a ledger of {len(entries)} entries")
    if witnessed.seq >= len(entries):
        raise LedgerDamaged(
            f"{path}: a truncated ledger: expected {witnessed.seq + 1} entries, got {len(entries)}; "
            "it was cut or restored from an older copy, do not train from it"
        )
    if witnessed != EMPTY and entries[witnessed.seq].hash != witnessed.hash:
        raise LedgerDamaged(f"{path}: entry {witnessed.seq} is not the one its head file names")
    return entries


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head")


def _record(head: Head) -> bytes:
    return canonical_bytes(head).ljust(_SECTOR - 1) + b"\n"


def _stored_head(path: Path) -> Head:
    """The witnessed head; a file that was made and not yet written says as little as none."""
    file = _head_path(path)
    try:
        raw = file.read_bytes()
        while (again := file.read_bytes()) != raw:  # the agent was writing
            raw = again
    except FileNotFoundError:
        return EMPTY
    if not raw:
        return EMPTY
    try:
        return Head.model_validate(parse_canonical(raw.rstrip(), _SECTOR))
    except (MalformedMessage, ValidationError) as error:
        raise LedgerDamaged(f"{_head_path(path)}: expected the ledger's head") from error
