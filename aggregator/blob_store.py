"""What a server's files lie in: write-once blobs under path segments, whole or not there at all.

A directory (``aggregator/blobs.py``) or a bucket (``aggregator/s3_blobs.py``); the same contract holds for
both. Knows digests and sizes, not what the bytes mean.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from aggregator.quota import Quota
from privacy.errors import Conflict, NotFound, OutOfOrder, TooLarge, Unprocessable
from privacy.ids import Digest

READ_BYTES: Final = 1 << 20
DigestOfFile = Callable[[Iterable[bytes]], Digest]


@dataclass(frozen=True)
class Listed:
    """One finished blob."""

    segments: tuple[str, ...]
    size: int
    modified: float
    """Seconds since the epoch, by the clock of whatever holds it."""


class Draft(ABC):
    """A temporary file that becomes a durable blob under its name in one step."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path

    def write(self, chunk: bytes) -> None:
        """Append."""
        self.file.write(chunk)

    def digest(self, digest_of_file: DigestOfFile) -> Digest:
        """Digest of what has been written."""
        self.file.flush()
        return digest_of_file(read_chunks(self.path))

    @abstractmethod
    def commit_new(self, *segments: str) -> bool:
        """Make it durable under a name; False, and nothing changed, where that name is taken.

        Raises:
            NotFound: what it belongs to was scrubbed in this moment.
        """

    @abstractmethod
    def commit(self, *segments: str) -> None:
        """Make it durable under a name, replacing what we derived ourselves before a crash."""

    @abstractmethod
    def place(self, *segments: str) -> None:
        """Give it its name without waiting for the disk: for bytes that can be computed again."""


class Blobs(ABC):
    """Write-once blobs, addressed by path segments that are names or digests."""

    quota: Quota | None = None
    """What peers may store here; counted where it is set."""

    @abstractmethod
    def draft(self) -> AbstractContextManager[Draft]:
        """A blob in the making, apart from all finished ones; it vanishes unless it is committed.

        Raises:
            StorageFull: there is no room for it.
        """

    @abstractmethod
    def chunks(self, *segments: str, start: int = 0) -> Iterator[bytes]:
        """The bytes from ``start`` on, at most about 1 MiB at a time.

        Raises:
            NotFound: there is none.
        """

    @abstractmethod
    def read(self, *segments: str) -> bytes:
        """A small blob whole.

        Raises:
            NotFound: there is none.
        """

    @abstractmethod
    def read_range(self, start: int, length: int, *segments: str) -> bytes:
        """``length`` bytes from ``start`` on, which lies before its end, or fewer where it ends.

        Raises:
            NotFound: there is none.
        """

    @abstractmethod
    def size(self, *segments: str) -> int:
        """Its bytes.

        Raises:
            NotFound: there is none.
        """

    @abstractmethod
    def exists(self, *segments: str) -> bool:
        """Whether it is there, complete."""

    @abstractmethod
    def names(self) -> list[str]:
        """The first segments of all that is here, in order."""

    @abstractmethod
    def listing(self) -> Iterator[Listed]:
        """All finished blobs, in any order."""

    @abstractmethod
    def scrub(self, *segments: str) -> None:
        """Delete a blob, or all under it, if there is any; others may write and delete meanwhile."""

    @abstractmethod
    def assert_usable(self) -> str:
        """What a probe sees of it.

        Raises:
            SealsumError: nothing could be stored or read now.
        """

    async def fetch(self, *segments: str) -> bytes:
        """``read`` beside everything else."""
        return await asyncio.to_thread(self.read, *segments)

    async def receive(
        self,
        body: AsyncIterator[bytes],
        expected: Digest,
        digest_of_file: DigestOfFile,
        *segments: str,
        limit: int,
        exact: bool = True,
    ) -> bool:
        """Store what a peer sends, once; True if the blob is new.

        The bytes go to a draft as they come; (1) they are within the peer's quota; (2) no byte beyond
        ``limit`` is kept; (3) the length is ``limit`` if it is ``exact``; (4) the digest is the one that
        was announced; (5) a name that exists already keeps its bytes.

        Raises:
            QuotaReached: (1). TooLarge: (2). Unprocessable: (3), (4). Conflict: (5), other bytes.
            OutOfOrder: (5), the blob is being scrubbed. StorageFull: there is no room; nothing is kept.
        """
        # (1)
        if self.quota is None:
            return await self._receive(body, expected, digest_of_file, segments, limit, exact)
        with self.quota.reserve(segments, limit) as reserved:
            new = await self._receive(body, expected, digest_of_file, segments, limit, exact)
            reserved.stored()
            return new

    async def _receive(
        self,
        body: AsyncIterator[bytes],
        expected: Digest,
        digest_of_file: DigestOfFile,
        segments: tuple[str, ...],
        limit: int,
        exact: bool,
    ) -> bool:
        with self.draft() as draft:
            received = 0
            async for chunk in body:
                received += len(chunk)
                # (2)
                if received > limit:
                    raise TooLarge(f"body: expected at most {limit} bytes, got more")
                draft.write(chunk)
            # (3)
            if exact and received != limit:
                raise Unprocessable(f"body: expected {limit} bytes, got {received}")
            # (4)
            found = await asyncio.to_thread(draft.digest, digest_of_file)
            if found != expected:
                raise Unprocessable(f"digest: expected {expected[:16]}…, got {found[:16]}…; send it again")
            # (5)
            try:
                if await asyncio.to_thread(draft.commit_new, *segments):
                    return True
                there = await asyncio.to_thread(self._digest_there, digest_of_file, segments)
            except NotFound as error:
                # Its folder was scrubbed between two of these steps: what it belonged to is over.
                raise OutOfOrder(f"{segments[-1]}: it was deleted while these bytes came") from error
            if there != expected:
                raise Conflict(f"{segments[-1]}: other bytes came first under this name; they hold")
            return False

    def _digest_there(self, digest_of_file: DigestOfFile, segments: tuple[str, ...]) -> Digest:
        return digest_of_file(self.chunks(*segments))


@dataclass(frozen=True)
class Blob:
    """Where one blob lies, for who reads it later."""

    files: Blobs
    segments: tuple[str, ...]

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """Its bytes from ``start`` on."""
        return self.files.chunks(*self.segments, start=start)

    def read(self) -> bytes:
        """All of it."""
        return self.files.read(*self.segments)

    def read_range(self, start: int, length: int) -> bytes:
        """Some of it."""
        return self.files.read_range(start, length, *self.segments)

    async def fetch(self) -> bytes:
        """All of it, beside everything else."""
        return await self.files.fetch(*self.segments)


def plain(segments: tuple[str, ...]) -> tuple[str, ...]:
    """The segments, if each is a plain name; they come from validated ids, never from raw input.

    Raises:
        NotFound: one is empty, goes up, or holds a separator or a control character.
    """
    for segment in segments:
        if segment in ("", ".", "..") or "/" in segment or "\\" in segment or not segment.isprintable():
            raise NotFound("file: expected plain names")
    return segments


def not_there(segments: tuple[str, ...]) -> NotFound:
    """The refusal where there is no such blob; says nothing of where blobs lie."""
    return NotFound(f"{'/'.join(segments[1:]) or segments[0][:16]}: there is no such file")


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, 1 MiB at a time."""
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            yield chunk
