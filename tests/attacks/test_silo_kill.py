"""``kill -9`` of a real agent at any moment: its ledger verifies; a round is charged and trained once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privacy.ids import PartyId, SiloId
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from tests.unit.silo_agent.loopback import SILO, Loopback, patients

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def _spawn(config: Path, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sealsum", "silo", "run", "--config", str(config), "--until-idle"]
    with log.open("a") as stderr:
        return subprocess.Popen(
            command, cwd=ROOT, stderr=stderr, text=True, env={**os.environ, "NO_PROXY": "*"}
        )


def _run_to_end(config: Path, log: Path) -> int:
    process = _spawn(config, log)
    try:
        return process.wait(120)
    finally:
        process.kill()
        process.wait()


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def _kill_after(event: str, config: Path, log: Path, delay_s: float = 0.0) -> None:
    process = _spawn(config, log)
    try:
        while not (log.exists() and f'"event": "{event}"' in log.read_text()):
            assert process.poll() is None, log.read_text()
        threading.Event().wait(delay_s)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(30) in (-signal.SIGKILL, 0)


def _entries(servers: Loopback, directory: Path) -> list[str]:
    origin = ledger_origin("testfed", SiloId(PartyId(SILO)), "cardio")
    path = ledger_path(directory / "state", "cardio")
    return [entry.kind for entry in read_account(path, origin, servers.federation.key(SILO).verify_key)[1]]


@pytest.mark.parametrize("event", ["round_started", "reserved", "trained"])
def test_a_silo_killed_before_its_upload_is_charged_at_most_once_and_trains_the_round_once(
    servers: Loopback, tmp_path: Path, event: str
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    plan = servers.open_round(servers.job(rounds=1))
    stall = threading.Event()
    servers.before_upload = lambda: (stall.wait(60), None)[1]
    delay_s = random.SystemRandom().uniform(0.0, 0.05)
    _kill_after(event, config, tmp_path / "first.log", delay_s)
    servers.before_upload = lambda: None
    stall.set()

    before = _entries(servers, tmp_path)
    assert before.count("reserve") == (0 if before == ["open"] else 1)
    if event != "round_started":
        assert before.count("reserve") == 1

    servers.ended = True
    assert _run_to_end(config, tmp_path / "second.log") == 0, (tmp_path / "second.log").read_text()
    after = _entries(servers, tmp_path)
    assert after.count("reserve") <= 1
    assert after.count("begin") <= 1, "the noise of a round is drawn once"
    assert [line for line in _lines(tmp_path / "second.log") if line["event"] == "trained"] == [] or (
        before.count("begin") == 0
    )
    parts = servers.uploads.get(f"/v1/rounds/{plan.context}/parts/0", [])
    assert len(set(parts)) <= 1, "one masking of one update"
    assert parts or servers.refusals, "the round is told what became of this silo"


def test_a_silo_told_to_end_while_waiting_ends_at_once_with_0(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    process = _spawn(config, tmp_path / "log")
    try:
        servers.wait_until(lambda: servers.polls > 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
        assert [line["event"] for line in _lines(tmp_path / "log")][-1] == "stopped"
    finally:
        process.kill()
        process.wait()
