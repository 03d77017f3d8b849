"""Jobs shown to this silo, as their researchers signed them, so that people can read them before they run.

    jobs/<job digest>.json          an Envelope, canonical; that of a job that is over in jobs/ended/

Whoever reads one checks its signature again: what is on disk is believed no more than what comes by wire.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, PeerFault
from privacy.ids import Digest
from privacy.plan import JobSpec
from privacy.roster import Charter
from privacy.wire.envelope import Verified, parse_envelope
from privacy.wire.job_envelope import open_job
from silo_agent.durable import private_directory, write_durably


class StoredJobs:
    """All jobs shown to one silo."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / "jobs"
        self._ended = self._directory / "ended"

    def keep(self, job: Verified[JobSpec]) -> bool:
        """Store a job as it was signed; False if it is here already."""
        digest = job.message.digest
        if self._path(digest) is not None:
            return False
        private_directory(self._directory)
        write_durably(self._directory / f"{digest}.json", canonical_bytes(job.envelope))
        return True

    def end(self, digest: Digest) -> None:
        """The aggregator says that a job is over. Nothing rests on it but the list that people see."""
        path = self._directory / f"{digest}.json"
        if path.exists():
            private_directory(self._ended)
            path.replace(self._ended / path.name)

    def end_all_but(self, going_on: Collection[Digest]) -> None:
        """End what the aggregator does not list as open."""
        for digest in self.open_digests():
            if digest not in going_on:
                self.end(digest)

    def open_digests(self) -> tuple[Digest, ...]:
        """Of the jobs that are not over, as far as is known."""
        return _digests(self._directory)

    def ended_digests(self) -> tuple[Digest, ...]:
        """Of those that are."""
        return _digests(self._ended)

    def read(self, digest: Digest, charter: Charter) -> Verified[JobSpec]:
        """A stored job, its signature checked under this charter.

        Raises:
            ConfigurationError: there is none, it was altered, or it was signed under another charter.
        """
        path = self._path(digest)
        if path is None:
            raise ConfigurationError(f"job {digest[:16]}…: none of that digest was shown to this silo")
        try:
            job = open_job(parse_envelope(path.read_bytes()), charter)
        except PeerFault as error:
            raise ConfigurationError(
                f"{path}: expected a job that a researcher signed under the charter in force; {error}"
            ) from error
        if job.message.digest != digest:
            raise ConfigurationError(
                f"{path}: expected the job of that digest, got {job.message.digest[:16]}…; remove the file"
            )
        return job

    def _path(self, digest: Digest) -> Path | None:
        places = (self._directory / f"{digest}.json", self._ended / f"{digest}.json")
        return next((path for path in places if path.exists()), None)


def _digests(directory: Path) -> tuple[Digest, ...]:
    return tuple(Digest(path.stem) for path in sorted(directory.glob("*.json")))
