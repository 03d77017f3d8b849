"""Files of a server's state directory: parts of shares and models, each written whole or not at all.

A file appears under its name only complete and on disk (temporary file, fsync, link). Knows digests
and sizes, not what the bytes mean.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from privacy.canonical import sha256_hex
from privacy.errors import Conflict, NotFound, OutOfOrder, TooLarge, Unprocessable
from privacy.ids import Digest

READ_BYTES = 1 << 20
_DRAFTS = ".drafts"


DigestOfFile = Callable[[Iterable[bytes]], Digest]


class Draft:
    """A temporary file that becomes a durable one under its name in one step."""

    def __init__(self, file: BinaryIO, path: Path, target_of: Callable[..., Path]) -> None:
        self._file = file
        self._path = path
        self._target_of = target_of

    def write(self, chunk: bytes) -> None:
        """Append."""
        self._file.write(chunk)

    def digest(self, digest_of_file: DigestOfFile) -> Digest:
        """Digest of what has been written."""
        self._file.flush()
        return digest_of_file(read_chunks(self._path))

    def commit_new(self, *segments: str) -> bool:
        """Make it durable under a name; False, and nothing changed, where that name is taken.

        The directory is not synced: a name lost in a power cut is a part to send again.
        """
        self._sync()
        try:
            os.link(self._path, self._target(segments))
        except FileExistsError:
            return False
        return True

    def commit(self, *segments: str) -> None:
        """Make it durable under a name, replacing what we derived ourselves before a crash."""
        self._sync()
        target = self._target(segments)
        self._path.replace(target)
        _sync_directory(target.parent)

    def place(self, *segments: str) -> None:
        """Give it its name without waiting for the disk: for bytes that can be computed again."""
        self._file.flush()
        self._path.replace(self._target(segments))

    def _target(self, segments: tuple[str, ...]) -> Path:
        target = self._target_of(*segments)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return target

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


class Directory:
    """A directory of write-once files, addressed by path segments that are names or digests."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.scrub(_DRAFTS)  # what a crash left unfinished

    def path(self, *segments: str) -> Path:
        """Where a file lies. Segments come from validated ids, never from raw input."""
        if any(segment in ("", ".", "..") or "/" in segment or "\\" in segment for segment in segments):
            raise NotFound("file: expected plain names")
        return self._root.joinpath(*segments)

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """A file in the making, apart from all finished ones; it vanishes unless it is committed."""
        drafts = self._root / _DRAFTS
        drafts.mkdir(mode=0o700, exist_ok=True)
        temporary = drafts / os.urandom(8).hex()
        try:
            with temporary.open("xb") as file:
                yield Draft(file, temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)

    async def receive(
        self,
        body: AsyncIterator[bytes],
        expected: Digest,
        digest_of_file: DigestOfFile,
        *segments: str,
        limit: int,
        exact: bool = True,
    ) -> bool:
        """Store what a peer sends, once; True if the file is new.

        The bytes go to a draft as they come; (1) no byte beyond ``limit`` is kept; (2) the length is
        ``limit`` if it is ``exact``; (3) the digest is the one announced; (4) a name that exists already
        keeps its bytes.

        Raises:
            TooLarge: (1). Unprocessable: (2), (3). Conflict: (4), other bytes.
            OutOfOrder: (4), the file is being scrubbed.
        """
        with self.draft() as draft:
            received = 0
            async for chunk in body:
                received += len(chunk)
                # (1)
                if received > limit:
                    raise TooLarge(f"body: expected at most {limit} bytes, got more")
                draft.write(chunk)
            # (2)
            if exact and received != limit:
                raise Unprocessable(f"body: expected {limit} bytes, got {received}")
            # (3)
            found = await asyncio.to_thread(draft.digest, digest_of_file)
            if found != expected:
                raise Unprocessable(f"digest: expected {expected[:16]}…, got {found[:16]}…; send it again")
            # (4)
            try:
                if await asyncio.to_thread(draft.commit_new, *segments):
                    return True
                there = await asyncio.to_thread(digest_of_file, read_chunks(self.path(*segments)))
            except FileNotFoundError as error:
                # Its folder was scrubbed between two of these steps: what it belonged to is over.
                raise OutOfOrder(f"{segments[-1]}: it was deleted while these bytes came") from error
            if there != expected:
                raise Conflict(f"{segments[-1]}: other bytes came first under this name; they hold")
            return False

    def read(self, *segments: str) -> bytes:
        """A small file whole.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.path(*segments).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"{'/'.join(segments[1:]) or segments[0][:16]}: there is no such file") from error

    def exists(self, *segments: str) -> bool:
        """Whether a file is there, complete."""
        return self.path(*segments).is_file()

    def names(self) -> list[str]:
        """What lies directly in this directory."""
        return sorted(entry.name for entry in self._root.iterdir() if entry.name != _DRAFTS)

    def scrub(self, *segments: str) -> None:
        """Delete a subtree, if it is there; a late file may come and another thread may delete, meanwhile."""
        path = self.path(*segments)
        while path.exists():
            try:
                shutil.rmtree(path)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, 1 MiB at a time."""
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            yield chunk


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
