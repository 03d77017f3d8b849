"""How ``sealsum silo run`` ends where its machine fails (1), and that a policy's no (3) does not end it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privacy.errors import SealsumError
from silo_agent.outbox import Outbox
from tests.silo_yaml import registered
from tests.unit.silo_agent.loopback import Loopback, patients
from tests.unit.silo_agent.test_silo_it_run import _process_as_before, silo_run  # noqa: F401 - a fixture


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def test_a_disk_that_fills_up_in_a_round_ends_with_1_and_says_what_to_do(
    servers: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "outbox")

    monkeypatch.setattr(Outbox, "put_parts", full)
    result = silo_run(config, "--until-idle")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        1,
        "Error: outbox: No space left on device; make room and start again",
    )


def test_a_file_of_its_own_that_does_not_read_back_ends_with_1(
    servers: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))

    def damaged(*_: Any) -> None:
        raise SealsumError("state: it does not read back; restore it")

    monkeypatch.setattr("silo_agent.remembered.Remembered.conclude", damaged)
    result = silo_run(config, "--until-idle")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        1,
        "Error: state: it does not read back; restore it",
    )


def test_a_job_that_a_policy_refuses_does_not_end_the_agent(servers: Loopback, tmp_path: Path) -> None:
    cardio = registered(purpose=["another purpose"])
    config = servers.silo_files(tmp_path, patients(80), datasets={"cardio": cardio})
    servers.open_round(servers.job())
    servers.ended = True
    assert silo_run(config, "--until-idle").exit_code == 0
    assert [one.rule for one in servers.refusals] == ["dataset.purpose"]
