"""A silo's own log: what it decided, refused and reserved, as a Merkle tree that the servers witness in turn.

``<state>/log/log.jsonl``, one record a line, on disk before ``record`` returns. Never in it: counts, values,
columns, paths, or anything computed from records.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Self

from policies.audit_sinks.feed import Feed
from privacy.errors import (
    ConfigurationError,
    LedgerDamaged,
    MalformedMessage,
    SealsumError,
    SignatureRejected,
)
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    log_origin,
    open_checkpoint,
    sign_checkpoint,
)
from privacy.transparency.leaf import SALT_BYTES, Record, new_record, records_in_order
from privacy.transparency.merkle import Frontier
from silo_agent.durable import private_directory, sync_directory, write_durably

Kind = Literal[
    "started",
    "charter_in_force",
    "job_seen",
    "job_approved",
    "job_rejected",
    "job_auto_approved",
    "reserved",
    "round_refused",
    "witness_refused",
    "sink_failed",
    "sink_recovered",
]
"""What a silo's log may hold: that its agent started, under which charter it works, what people or rules said
of a job, blocks of rounds charged, rounds it refused, logs of others that it did not believe, and audit
sinks that took nothing."""
FILE: Final = "log.jsonl"
CHECKPOINT: Final = "checkpoint"


class SiloLog:
    """One silo's. The agent and commands of people at the same silo write it by turns.

    Each write holds a lock on the file, and first takes in what others have added. Thread-safe.
    """

    def __init__(self, state_dir: Path, federation: str, silo: PartyId, key: SigningKey) -> None:
        """Open it, or begin it, and check it:

        (1) an entry without a line end was never confirmed to anybody: it goes; (2) every entry is in its
        place; (3) it is not shorter than, and begins with, what was signed last.

        Raises:
            LedgerDamaged: (2), (3).
        """
        self.directory = private_directory(state_dir / "log")
        self.path = self.directory / FILE
        self.origin = log_origin(federation, silo)
        self._key = key
        self._guard = threading.Lock()
        self._failed = False
        self._feed: Feed | None = None
        self._frontier = Frontier()
        self._heads = [_head(self._frontier)]
        self._size = 0
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            sync_directory(self.directory)
            with self._alone():
                self._signed = self._last_signed()
        except BaseException:
            os.close(self._descriptor)
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread or process writes meanwhile, and what they wrote before has been taken in."""
        with self._guard:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                self._take_in()
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _take_in(self) -> None:
        there = os.fstat(self._descriptor).st_size
        if there == self._size:
            return
        if there < self._size:
            raise LedgerDamaged(f"{self.path}: expected at least {self._size} bytes, got {there}; it was cut")
        raw = os.pread(self._descriptor, there - self._size, self._size)
        whole = raw[: raw.rfind(b"\n") + 1]
        # (1)
        if len(whole) < len(raw):
            os.ftruncate(self._descriptor, self._size + len(whole))
            os.fsync(self._descriptor)
        # (2)
        for record in records_in_order(whole.split(b"\n")[:-1], self.origin, self._frontier.size):
            self._append(record)
        self._size += len(whole)

    def _append(self, record: Record) -> None:
        self._frontier, _ = self._frontier.append(record.leaf_hash(self.origin))
        self._heads.append(_head(self._frontier))
        if self._feed is not None:
            self._feed.grown([record])

    def feed(self) -> Feed:
        """Its entries for audit sinks, from now on also as they come; also those that others have added."""
        with self._alone():
            if self._feed is None:
                self._feed = Feed(self.origin, self.head.size, lambda: self.head, self._lines_from)
            return self._feed

    def _lines_from(self, first: int, most: int) -> list[bytes]:
        with self.path.open("rb") as file:
            return [line.rstrip(b"\n") for line in islice(file, first, first + most)]

    def refresh(self) -> None:
        """Take in what other processes at this silo have added."""
        with self._alone():
            pass

    def record(self, kind: Kind, fields: Mapping[str, Any]) -> Record:
        """Add one entry; it is on disk when this returns. Values hold no floats.

        Raises:
            SealsumError: the disk refused. The log takes no more entries until it is opened anew.
        """
        with self._alone():
            if self._failed:
                raise SealsumError(f"{self.path}: an earlier write failed; restart the agent")
            salts = os.urandom(SALT_BYTES * len(fields))
            record = new_record(self._frontier.size, _now(), kind, fields, salts)
            line = record.line() + b"\n"
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._descriptor, line[written:])
                os.fsync(self._descriptor)
            except OSError as error:
                self._failed = True
                raise SealsumError(
                    f"{self.path}: cannot be written ({error.strerror}); free the disk"
                ) from error
            self._append(record)
            self._size += len(line)
            return record

    @property
    def head(self) -> LogHead:
        """How many entries there are, and the root over them."""
        return self._heads[-1]

    def began_with(self, head: LogHead) -> bool:
        """Whether this log begins with the one whose head somebody has seen."""
        return head.size < len(self._heads) and self._heads[head.size] == head

    def checkpoint(self) -> Checkpoint:
        """The head, signed, and kept before anybody is shown it; the same one as long as nothing is added."""
        with self._alone():
            if self._signed is None or self._signed.head != self.head:
                self._signed = sign_checkpoint(self.origin, self.head, self._key)
                write_durably(self.directory / CHECKPOINT, self._signed.note().encode())
            return self._signed

    def lines(self) -> list[bytes]:
        """Every entry as its line, in order."""
        with self._alone():
            return self.path.read_bytes().split(b"\n")[:-1]

    def close(self) -> None:
        """Release it."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def _last_signed(self) -> Checkpoint | None:
        # (3)
        kept = kept_checkpoint(self.directory, self.origin, self._key.verify_key)
        if kept is None:
            return None
        size = kept.head.size
        if size >= len(self._heads) or self._heads[size] != kept.head:
            raise LedgerDamaged(
                f"{self.path}: expected the {size} entries that this silo has signed, got "
                f"{len(self._heads) - 1} or others; restore the newest copy of the silo's state, whole"
            )
        return kept


def read_log(state_dir: Path, federation: str, silo: PartyId) -> tuple[Record, ...]:
    """A silo's log as it lies there, without opening it for writing.

    Raises:
        LedgerDamaged: an entry is not in its place. ConfigurationError: there is none.
    """
    path = state_dir / "log" / FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no such log; this silo's agent has not run yet") from error
    whole = raw[: raw.rfind(b"\n") + 1]
    return tuple(records_in_order(whole.split(b"\n")[:-1], log_origin(federation, silo)))


def kept_checkpoint(directory: Path, origin: str, verify_key: str) -> Checkpoint | None:
    """The newest checkpoint that the silo signed, if it has signed one.

    Raises:
        LedgerDamaged: what lies there is not the silo's own.
    """
    path = directory / CHECKPOINT
    if not path.exists():
        return None
    try:
        return open_checkpoint(path.read_text("utf-8"), origin, verify_key)
    except (MalformedMessage, SignatureRejected, UnicodeDecodeError) as error:
        raise LedgerDamaged(f"{path}: expected a checkpoint that this silo signed") from error


def _head(frontier: Frontier) -> LogHead:
    return LogHead(size=frontier.size, root=Digest(frontier.root.hex()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
