"""Which store a server's settings ask for: a folder of ``state_dir``, or a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from aggregator.blob_store import Blobs
from aggregator.blobs import Directory
from aggregator.quota import Limits, Quota
from aggregator.settings import ServerSettings
from privacy.errors import ConfigurationError, SealsumError

Kind = Literal["models", "parts", "sums", "optimizers", "opening", "drafts"]


class Stores:
    """One server's, each opened once."""

    def __init__(self, settings: ServerSettings) -> None:
        """Try the bucket, if one is asked for.

        Raises:
            ConfigurationError: it cannot be used, or obstore is not installed.
        """
        self._settings = settings
        self._open: Callable[[Kind], Blobs] = self._folder if settings.blobs is None else self._in_bucket()
        self.opened: dict[Kind, Blobs] = {}
        self.quota: Quota | None = None

    def open(self, kind: Kind) -> Blobs:
        """The blobs of one kind; of parts, which peers send, those that are here count against the quota."""
        blobs = self.opened[kind] = self._open(kind)
        if kind == "parts":
            settings = self._settings
            quota = Quota(
                Limits(settings.silo_bytes_max, settings.silo_parts_max, settings.storage_bytes_max)
            )
            quota.load((one.segments, one.size) for one in blobs.listing())
            blobs.quota = self.quota = quota
        return blobs

    def assert_usable(self) -> str:
        """What a probe of one of them sees; all are in one place.

        Raises:
            SealsumError: nothing could be stored or read now.
        """
        return next(iter(self.opened.values())).assert_usable()

    def _folder(self, kind: Kind) -> Blobs:
        return Directory(self._settings.state_dir / kind)

    def _in_bucket(self) -> Callable[[Kind], Blobs]:
        settings = self._settings.blobs
        assert settings is not None  # noqa: S101 - asked for
        try:
            from aggregator.s3_blobs import S3Blobs, bucket_of
        except ImportError as error:
            raise ConfigurationError(
                "blobs: expected obstore for a bucket, it is not installed; pip install 'sealsum[s3]'"
            ) from error
        bucket, spool = bucket_of(settings), self._settings.state_dir / "spool"

        def prefixed(kind: Kind) -> Blobs:
            return S3Blobs(bucket, f"{settings.prefix}/{kind}", spool / kind)

        try:
            prefixed("drafts").assert_usable()
        except SealsumError as error:
            raise ConfigurationError(
                f"blobs: expected to write, read and delete under {settings.url}, got: {error}; see to its "
                "address, its credentials and what they may do"
            ) from error
        return prefixed
