"""Secrets of jobs at a silo: private, whole or not there, gone when the job is."""

from __future__ import annotations

from pathlib import Path

import pytest

from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import Digest, JobId
from silo_agent.job_secrets import JobSecrets

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
