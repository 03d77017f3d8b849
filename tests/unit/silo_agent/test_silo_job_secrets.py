"""Secrets of jobs at a silo: private, whole or not there, gone when the job is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import Digest, JobId
from silo_agent.agent import EXIT_DONE
from silo_agent.job_secrets import JobSecrets
from tests.unit.silo_agent.loopback import Loopback, patients, run_agent

DIGEST = Digest("ab" * 32)


def test_a_secret_is_kept_privately_until_it_is_forgotten(tmp_path: Path) -> None:
    secrets = JobSecrets(tmp_path)
    assert secrets.read(DIGEST) is None
    assert secrets.jobs() == {}
    secrets.keep(DIGEST, JobId("heart"), b"\x00secret\xff")
    path = tmp_path / "he" / f"{DIGEST}.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert JobSecrets(tmp_path).read(DIGEST) == b"\x00secret\xff"
    assert JobSecrets(tmp_path).jobs() == {DIGEST: "heart"}
    secrets.forget(DIGEST)
    secrets.forget(DIGEST)
    assert not path.exists()


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secrets = JobSecrets(tmp_path)
    secrets.keep(DIGEST, JobId("heart"), b"secret")
    (tmp_path / "he" / f"{DIGEST}.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        secrets.read(DIGEST)


def test_a_damaged_secret_says_what_to_do_and_does_not_print(tmp_path: Path) -> None:
    secrets = JobSecrets(tmp_path)
    secrets.keep(DIGEST, JobId("heart"), b"secret")
    path = tmp_path / "he" / f"{DIGEST}.key"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(SealsumError, match="the key is fetched again") as raised:
        secrets.read(DIGEST)
    assert "c2Vj" not in str(raised.value)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


@pytest.mark.parametrize("ended", [True, False])
def test_an_agent_deletes_what_it_kept_for_jobs_that_are_over_and_keeps_the_rest(
    servers: Loopback, tmp_path: Path, ended: bool
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    secrets, job = JobSecrets(tmp_path / "state"), servers.job(rounds=1)
    secrets.keep(DIGEST, JobId("an-earlier-one"), b"secret")
    secrets.keep(job.digest, job.job, b"secret")
    servers.open_round(job)
    servers.ended = ended
    assert run_agent(config) == EXIT_DONE
    assert (secrets.read(DIGEST) is None) == ended
    assert secrets.read(job.digest) is None, "its last round has a result"
