"""Blobs in an S3-compatible bucket, by obstore. Nothing reaches it before it is whole and checked.

A draft is a file in ``state_dir``; what is committed appears in one step: by one conditional PUT, or, if it
is large, by a multipart upload from that file, of which a few parts are in memory at a time. Its credentials
are read once, at start, and are in nobody's ``repr``, logs or errors.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from aggregator import blob_store
from aggregator.blob_settings import BlobSettings
from aggregator.blob_store import READ_BYTES, Blobs, Listed, not_there, plain
from aggregator.blobs import Directory
from aggregator.not_now import BlobsAway
from privacy.errors import NotFound

if TYPE_CHECKING:
    from obstore.store import ClientConfig

SINGLE_BYTES: Final = 16 << 20
"""Up to here one PUT, which the bucket refuses by itself where the name is taken."""
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 2
_DELETED_AT_ONCE: Final = 500
_SPOOLED: Final = "draft"
_PATIENCE: Final = timedelta(seconds=20)
_log = logging.getLogger("sealsum.blobs")


class S3Draft(blob_store.Draft):
    """Of an object."""

    def __init__(self, file: BinaryIO, path: Path, blobs: S3Blobs) -> None:
        super().__init__(file, path)
        self._blobs = blobs

    def commit_new(self, *segments: str) -> bool:
        """As for all blobs."""
        self.file.flush()
        return self._blobs.put_new(self.path, segments)

    def commit(self, *segments: str) -> None:
        """As for all blobs."""
        self.file.flush()
        self._blobs.put(self.path, segments)

    def place(self, *segments: str) -> None:
        """As ``commit``: an object is durable or not there."""
        self.commit(*segments)


class S3Blobs(Blobs):
    """The objects under one prefix of a bucket."""

    def __init__(self, store: S3Store, prefix: str, spool: Path) -> None:
        """``spool``: where drafts are, of this object alone."""
        self._store = store
        self._prefix = prefix
        self._spool = Directory(spool)
        self._large = threading.Lock()

    def __repr__(self) -> str:
        return f"S3Blobs({self._prefix!r})"

    @contextmanager
    def draft(self) -> Iterator[S3Draft]:
        """As for all blobs."""
        with self._spool.draft() as spooled:
            yield S3Draft(spooled.file, spooled.path, self)

    def put_new(self, path: Path, segments: tuple[str, ...]) -> bool:
        """Store a file under a name that is free; False where it is taken.

        A large one is looked for first, under a lock: of several processes only the lease's holder writes.
        """
        key = self._key(segments)
        if path.stat().st_size > SINGLE_BYTES:
            with self._large:
                if self.exists(*segments):
                    return False
                self.put(path, segments)
            return True
        with _answering(segments):
            try:
                obstore.put(self._store, key, path.read_bytes(), mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def put(self, path: Path, segments: tuple[str, ...]) -> None:
        """Store a file under a name, whatever is there."""
        large = path.stat().st_size > SINGLE_BYTES
        with _answering(segments), path.open("rb") as file:
            obstore.put(
                self._store,
                self._key(segments),
                file if large else file.read(),
                use_multipart=large,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def chunks(self, *segments: str, start: int = 0) -> Iterator[bytes]:
        """As for all blobs."""
        if start and start >= self.size(*segments):
            return
        with _answering(segments):
            answer = obstore.get(self._store, self._key(segments), options={"range": {"offset": start}})
            for chunk in answer.stream(min_chunk_size=READ_BYTES):
                yield bytes(chunk)

    def read(self, *segments: str) -> bytes:
        """As for all blobs."""
        with _answering(segments):
            return bytes(obstore.get(self._store, self._key(segments)).bytes())

    def read_range(self, start: int, length: int, *segments: str) -> bytes:
        """As for all blobs."""
        with _answering(segments):
            return bytes(obstore.get_range(self._store, self._key(segments), start=start, length=length))

    def size(self, *segments: str) -> int:
        """As for all blobs."""
        with _answering(segments):
            return int(obstore.head(self._store, self._key(segments))["size"])

    def exists(self, *segments: str) -> bool:
        """As for all blobs."""
        plain(segments)
        try:
            self.size(*segments)
        except NotFound:
            return False
        return True

    def names(self) -> list[str]:
        """As for all blobs."""
        with _answering(()):
            found = obstore.list_with_delimiter(self._store, self._prefix)
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(self._below(path)[0] for path in paths)

    def listing(self) -> Iterator[Listed]:
        """As for all blobs."""
        with _answering(()):
            for page in obstore.list(self._store, self._prefix, chunk_size=_DELETED_AT_ONCE):
                for one in page:
                    yield Listed(self._below(one["path"]), one["size"], one["last_modified"].timestamp())

    def scrub(self, *segments: str) -> None:
        """As for all blobs."""
        key = self._key(segments)
        with _answering(segments):
            for page in obstore.list(self._store, key, chunk_size=_DELETED_AT_ONCE):
                obstore.delete(self._store, [one["path"] for one in page])
            obstore.delete(self._store, key)
        if self.quota is not None:
            self.quota.forget(segments)

    def assert_usable(self) -> str:
        """Whether a small object can be written, read and deleted, and drafts be kept."""
        self._spool.assert_usable()
        key, raw = f"{self._prefix}/.probe-{os.urandom(8).hex()}", os.urandom(16)
        with _answering(()):
            obstore.put(self._store, key, raw, use_multipart=False)
            there = bytes(obstore.get(self._store, key).bytes())
            obstore.delete(self._store, key)
        if there != raw:
            raise BlobsAway("blobs: expected the bytes that were written, got others; see to the store")
        return "takes objects"

    def _key(self, segments: tuple[str, ...]) -> str:
        return "/".join((self._prefix, *plain(segments)))

    def _below(self, path: str) -> tuple[str, ...]:
        return tuple(path.removeprefix(f"{self._prefix}/").split("/"))


def bucket_of(settings: BlobSettings) -> S3Store:
    """The bucket, with what it takes to use it; nothing is asked of it yet.

    Raises:
        ConfigurationError: a credential is not where its reference says.
    """
    endpoint = settings.endpoint or f"https://s3.{settings.region}.amazonaws.com"
    client: ClientConfig = {"timeout": _PATIENCE, "connect_timeout": timedelta(seconds=5)}
    if endpoint.startswith("http://"):
        client["allow_http"] = True  # this machine only: BlobSettings takes no other host without TLS
    if settings.ca is not None:
        client["root_certificate"] = settings.ca_bytes()
    return S3Store(
        settings.bucket,
        region=settings.region,
        endpoint=endpoint,
        access_key_id=settings.access_key.read("blobs.access_key").decode().strip(),
        secret_access_key=settings.secret_key.read("blobs.secret_key").decode().strip(),
        checksum_algorithm="SHA256",
        conditional_put="etag",
        client_options=client,
        retry_config={"max_retries": 4, "retry_timeout": _PATIENCE},
    )


@contextmanager
def _answering(segments: tuple[str, ...]) -> Iterator[None]:
    """What a bucket's refusals mean to us; its words stay in our log, without the request.

    Raises:
        NotFound: there is no such object. BlobsAway: it does not answer, or does not let us.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not segments:
            raise BlobsAway("blobs: expected the bucket of blobs.url, there is none; make it") from error
        raise not_there(segments) from error
    except AlreadyExistsError:
        raise
    except BaseError as error:
        _log.error("blobs_away", extra={"reason": type(error).__name__})
        raise BlobsAway(
            f"blobs: expected the store to take this call, got {type(error).__name__}; nothing half-written "
            "is there, ask again later"
        ) from error
