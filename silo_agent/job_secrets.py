"""Secrets that a silo keeps for a whole job, across rounds and restarts, and deletes when the job has ended.

    he/<job digest>.key    mode 0600; job name, so that its end can be asked for, and the secret's bytes

Knows neither schemes nor network.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

from pydantic import Base64Bytes, Field, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage, SealsumError
from privacy.ids import Digest, JobId, JobName
from privacy.keystore import read_secret
from silo_agent.durable import private_directory, sync_directory, write_durably

_MAX_BYTES = 1 << 20
_SUFFIX = ".key"


class _Kept(Frozen):
    job: JobName
    secret: Annotated[Base64Bytes, Field(repr=False)]


class JobSecrets:
    """One secret a job."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / "he"

    def read(self, digest: Digest) -> bytes | None:
        """The secret of a job, if there is one.

        Raises:
            SealsumError: it does not read back. ConfigurationError: others can read it.
        """
        path = self._path(digest)
        return _read(path).secret if path.exists() else None

    def keep(self, digest: Digest, job: JobId, secret: bytes) -> None:
        """Store a job's secret, durably."""
        private_directory(self._directory)
        kept = {"job": job, "secret": base64.b64encode(secret).decode()}
        write_durably(self._path(digest), canonical_bytes(kept))

    def forget(self, digest: Digest) -> None:
        """Delete a job's secret, durably."""
        if self._path(digest).exists():
            self._path(digest).unlink()
            sync_directory(self._directory)

    def jobs(self) -> dict[Digest, JobId]:
        """The jobs that have a secret here, by digest."""
        paths = sorted(self._directory.glob(f"*{_SUFFIX}"))
        return {Digest(path.name.removesuffix(_SUFFIX)): _read(path).job for path in paths}

    def _path(self, digest: Digest) -> Path:
        return self._directory / f"{digest}{_SUFFIX}"


def _read(path: Path) -> _Kept:
    try:
        return _Kept.model_validate(parse_canonical(read_secret(path), _MAX_BYTES))
    except (MalformedMessage, ValidationError) as error:
        raise SealsumError(f"{path}: it does not read back; remove it: the key is fetched again") from error
