"""Where parts and models lie if not in ``state_dir``: a bucket, and references to what opens it."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.key_reference import KeyReference

_BUCKET: Final = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+$"


class BlobSettings(Frozen):
    """``blobs:`` of ``server.yaml``."""

    url: Annotated[str, Field(pattern=_BUCKET, max_length=512)]
    """``s3://bucket/prefix``. The prefix is this server's alone: what is under it and unknown is deleted."""
    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/@?#]+$")] | None = None
    """Where the store is, if it is not Amazon's; ``http://`` on this machine only."""
    region: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] = "us-east-1"
    access_key: KeyReference
    """Where the access key id lies: ``file:``, ``env:`` or ``systemd-creds:``."""
    secret_key: KeyReference
    ca: Path | None = None
    """PEM of the CA that signed the endpoint's certificate, if no public one did; relative to this file."""

    @property
    def bucket(self) -> str:
        """Its name."""
        return urlsplit(self.url).netloc

    @property
    def prefix(self) -> str:
        """What comes before each key."""
        return urlsplit(self.url).path.strip("/")

    def ca_bytes(self) -> bytes:
        """The CA's PEM.

        Raises:
            ConfigurationError: it cannot be read.
        """
        try:
            return (self.ca or Path()).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"blobs.ca: {self.ca}: {error.strerror}; correct its path") from error

    @model_validator(mode="after")
    def _plain_http_stays_here(self) -> Self:
        if self.endpoint is not None and self.endpoint.startswith("http://"):
            host = urlsplit(self.endpoint).hostname or ""
            if not _is_this_machine(host):
                raise ValueError(
                    "blobs.endpoint: expected https://, or http:// on this machine's loopback address, "
                    f"got http://{host}; masked parts would cross the network in the open"
                )
        return self


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
