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
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import (
    EMPTY,
    MAX_ENTRY_BYTES,
    Entry,
    Head,
    next_entry,
    parse_entry,
    verify_entries,
)
from privacy.errors import ConfigurationError, LedgerDamaged, SealsumError
from privacy.identity import SigningKey
from silo_agent.durable import private_directory, sync_directory, write_durably
from silo_agent.ledger.journal_head import (
    SECTOR,
    Places,
    assert_reaches,
    head_path,
    record_of,
    stored_head,
)

_log = logging.getLogger(__name__)


class Journal:
    """The one writer of a journal. A second process that opens the same file is refused."""

    def __init__(self, path: Path, origin: str, key: SigningKey, *, mending: bool = False) -> None:
        """Open and verify, in this order:

        (1) take the lock; (2) drop a torn last line, which nobody was told about; (3) verify every link
        and signature; (4) refuse a journal that lacks the entry its head file names. For ``mending`` (4) is
        left out, and the journal takes entries that were signed before.

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
            if mending:
                whole = self._cut(whole)
            self._entries = _verified(whole, path, origin, key.verify_key)  # (3)
            self._places = Places(self._entries)
            self.kept_head = stored_head(path)
            if not mending:
                assert_reaches(path, self._entries, self._places, self.kept_head)  # (4)
            self._head = os.open(head_path(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            sync_directory(path.parent)
        except BaseException:
            self.close()
            raise

    def _cut(self, whole: bytes) -> bytes:
        """The lines before the first that does not verify; if one does not, all stay in a file beside it."""
        kept = _verifiable(whole, self._origin, self._key.verify_key)
        if len(kept) < len(whole):
            aside = self.path.with_name(f"{self.path.stem}.damaged-{sha256_hex(whole)[:12]}")
            write_durably(aside, whole)
            _log.warning("ledger_cut", extra={"path": str(self.path), "all": str(aside)})
            os.ftruncate(self._descriptor, len(kept))
            os.fsync(self._descriptor)
        return kept

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
        """Whether that entry is in it, or was written off."""
        return self._places.hold(head)

    def append(self, kind: str, body: dict[str, Any], now: datetime, *, head_durably: bool = True) -> Entry:
        """Sign and store one entry; it is on disk when this returns, with ``head_durably`` its head too.

        Raises:
            SealsumError: the disk refused. The journal takes no more entries until it is opened anew,
                because after a failed fsync nobody knows what is on disk.
        """
        entry = next_entry(self.head, self._origin, stamp(now), kind, body, self._key)
        self.take(entry)
        self.confirm(durably=head_durably)
        return entry

    def take(self, entry: Entry) -> None:
        """Store an entry that is signed and known to follow the last; it is on disk when this returns, its
        head is not.

        Raises:
            SealsumError: as ``append``.
        """
        if self._failed:
            raise SealsumError(f"{self.path}: an earlier write failed; restart the agent")
        line = canonical_bytes(entry) + b"\n"
        try:
            self._write(line)
        except OSError as error:
            raise self._failure(error) from error
        self._entries.append(entry)
        self._places.add(entry)

    def confirm(self, *, durably: bool = True) -> None:
        """Let the head file name the last entry.

        Raises:
            SealsumError: as ``append``.
        """
        try:
            self._write_head(self.head, durably)
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> SealsumError:
        self._failed = True
        return SealsumError(f"{self.path}: cannot be written ({error.strerror}); free the disk")

    def _write(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += os.write(self._descriptor, line[written:])
        os.fsync(self._descriptor)

    def _write_head(self, head: Head, durably: bool) -> None:
        if self._head is None or os.pwrite(self._head, record_of(head), 0) != SECTOR:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(head_path(self.path)))
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
        head = stored_head(path)
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no such ledger; nothing was trained on this dataset") from error
    entries = _verified(_whole_lines(raw), path, origin, verify_key)
    assert_reaches(path, entries, Places(entries), head)
    return tuple(entries)


def stamp(now: datetime) -> str:
    """A time as entries say it."""
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _whole_lines(raw: bytes) -> bytes:
    """Everything up to the last line end: an entry without one was never confirmed to anybody."""
    return raw[: raw.rfind(b"\n") + 1]


def _verifiable(whole: bytes, origin: str, verify_key: str) -> bytes:
    lines = whole.splitlines(keepends=True)
    entries = (parse_entry(line.rstrip(b"\n")) for line in lines)
    good = 0
    with suppress(LedgerDamaged):
        for _ in verify_entries(entries, origin, verify_key, may_lose=True):
            good += 1
    return b"".join(lines[:good])


def _verified(whole: bytes, path: Path, origin: str, verify_key: str) -> list[Entry]:
    lines = whole.split(b"\n")[:-1]
    if any(len(line) > MAX_ENTRY_BYTES for line in lines):
        raise LedgerDamaged(f"{path}: expected entries of at most {MAX_ENTRY_BYTES} bytes")
    return list(verify_entries(map(parse_entry, lines), origin, verify_key, may_lose=True))
