"""A file that grows by one line an entry, and is begun anew when somebody has moved it away."""

from __future__ import annotations

import os
from pathlib import Path

from policies.audit_sinks.entry import Entry
from policies.audit_sinks.settings import Format


class JsonlSink:
    """Appends to ``path`` (0600), each batch in one write; a line cut short by a crash is ended first."""

    def __init__(self, path: Path, form: Format, *, fsync: bool) -> None:
        self._path = path
        self._form = form
        self._fsync = fsync
        self._descriptor: int | None = None

    def send(self, entries: list[Entry]) -> None:
        """See ``Sink``."""
        descriptor = self._opened()
        raw = b"".join(entry.text(self._form) + b"\n" for entry in entries)
        while raw:
            raw = raw[os.write(descriptor, raw) :]
        if self._fsync:
            os.fsync(descriptor)

    def settle(self) -> None:
        """See ``Sink``."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """See ``Sink``."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is not None and not self._is_at(self._descriptor):
            os.fsync(self._descriptor)
            self.close()
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")
        return self._descriptor

    def _is_at(self, descriptor: int) -> bool:
        """Whether the path still leads to the open file."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        ours = os.fstat(descriptor)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
