"""Files of a server's state directory: parts of shares and models, each written whole or not at all.

A file appears under its name only complete and on disk (temporary file, fsync, link). Knows digests
and sizes, not what the bytes mean.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from aggregator import blob_store
from aggregator.blob_store import Blobs, Listed, not_there, plain
from aggregator.not_now import StorageFull
from privacy.canonical import sha256_hex
from privacy.errors import Unprocessable
from privacy.ids import Digest

_DRAFTS = ".drafts"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk, this user's quota on it, or the size that the operator lets files of this process have."""
_PROBE_BYTES: Final = 1 << 16
_log = logging.getLogger("sealsum.blobs")


class Draft(blob_store.Draft):
    """Of a file in a directory."""

    def __init__(self, file: BinaryIO, path: Path, target_of: Callable[..., Path]) -> None:
        super().__init__(file, path)
        self._target_of = target_of

    def commit_new(self, *segments: str) -> bool:
        """As for all blobs. The folder is not synced: a name lost in a power cut is a part to send again."""
        self._sync()
        try:
            os.link(self.path, self._target(segments))
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise not_there(segments) from error  # scrubbed between making its folder and this
        return True

    def commit(self, *segments: str) -> None:
        """Make it durable under a name, replacing what we derived ourselves before a crash."""
        self._sync()
        target = self._target(segments)
        self.path.replace(target)
        _sync_directory(target.parent)

    def place(self, *segments: str) -> None:
        """Give it its name without waiting for the disk: for bytes that can be computed again."""
        self.file.flush()
        self.path.replace(self._target(segments))

    def _target(self, segments: tuple[str, ...]) -> Path:
        target = self._target_of(*segments)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return target

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


class Directory(Blobs):
    """A directory of write-once files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.scrub(_DRAFTS)  # what a crash left unfinished

    def path(self, *segments: str) -> Path:
        """Where a file lies.

        Raises:
            NotFound: see ``blob_store.plain``.
        """
        return self._root.joinpath(*plain(segments))

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """As for all blobs."""
        drafts = self._root / _DRAFTS
        temporary = drafts / os.urandom(8).hex()
        try:
            with room_or_refusal():
                drafts.mkdir(mode=0o700, exist_ok=True)
                with temporary.open("xb") as file:
                    yield Draft(file, temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def chunks(self, *segments: str, start: int = 0) -> Iterator[bytes]:
        """As for all blobs."""
        with self._open(segments) as file:
            file.seek(start)
            while chunk := file.read(blob_store.READ_BYTES):
                yield chunk

    def read(self, *segments: str) -> bytes:
        """As for all blobs."""
        with self._open(segments) as file:
            return file.read()

    def read_range(self, start: int, length: int, *segments: str) -> bytes:
        """As for all blobs."""
        with self._open(segments) as file:
            file.seek(start)
            return file.read(length)

    def size(self, *segments: str) -> int:
        """As for all blobs."""
        try:
            return self.path(*segments).stat().st_size
        except FileNotFoundError as error:
            raise not_there(segments) from error

    def exists(self, *segments: str) -> bool:
        """As for all blobs."""
        return self.path(*segments).is_file()

    def names(self) -> list[str]:
        """As for all blobs."""
        return sorted(entry.name for entry in self._root.iterdir() if entry.name != _DRAFTS)

    def listing(self) -> Iterator[Listed]:
        """As for all blobs; what is deleted meanwhile may be missing."""
        for folder, folders, files in os.walk(self._root):
            if Path(folder) == self._root and _DRAFTS in folders:
                folders.remove(_DRAFTS)
            for name in files:
                path = Path(folder, name)
                with suppress(FileNotFoundError):
                    state = path.stat()
                    yield Listed(path.relative_to(self._root).parts, state.st_size, state.st_mtime)

    def scrub(self, *segments: str) -> None:
        """As for all blobs."""
        path = self.path(*segments)
        while path.exists():
            try:
                if path.is_file():
                    path.unlink(missing_ok=True)
                else:
                    shutil.rmtree(path)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise
        if self.quota is not None:
            self.quota.forget(segments)

    def assert_usable(self) -> str:
        """Whether a little can be written."""
        with self.draft() as draft:
            draft.write(bytes(_PROBE_BYTES))
            draft.digest(sha256_of)
        return "takes files"

    def _open(self, segments: tuple[str, ...]) -> BinaryIO:
        try:
            return self.path(*segments).open("rb")
        except (FileNotFoundError, IsADirectoryError) as error:
            raise not_there(segments) from error


@contextmanager
def room_or_refusal() -> Iterator[None]:
    """Tell a disk without room from other failures.

    Raises:
        StorageFull: the operating system says so.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _log.error("storage_full", extra={"reason": error.strerror, "path": str(error.filename or "")})
        raise StorageFull(
            "storage: expected room for these bytes, got none on this server's disk; nothing of them was "
            "kept, send them again later"
        ) from error


def sha256_of(chunks: Iterable[bytes]) -> Digest:
    """SHA-256 over chunks."""
    running = hashlib.sha256()
    for chunk in chunks:
        running.update(chunk)
    return Digest(running.hexdigest())


def checked(raw: bytes, expected: Digest, what: str) -> bytes:
    """The bytes, if they are the ones announced.

    Raises:
        Unprocessable: they are not.
    """
    if sha256_hex(raw) != expected:
        raise Unprocessable(f"{what}: its bytes are not the ones that were signed for")
    return raw


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
