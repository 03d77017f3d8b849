"""A whole agent whose audit sinks take nothing: it begins no training, says why, and has it on record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from silo_agent.agent import EXIT_DONE
from silo_agent.ledger.books import ledger_path
from silo_agent.settings import read_settings
from tests.unit.silo_agent.loopback import Loopback, patients, run_agent


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def _kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


def test_no_training_begins_before_a_sink_has_the_log(servers: Loopback, tmp_path: Path) -> None:
    dead = {"name": "siem", "type": "syslog", "url": f"unix://{tmp_path}/nobody"}
    config = servers.silo_files(tmp_path, patients(80), audit_sinks=[dead], audit_wait_s=0.1)
    plan = servers.open_round(servers.job())
    servers.end_round(plan.context, servers.opened(plan, "failed"))
    servers.ended = True
    assert run_agent(config) == EXIT_DONE
    state = read_settings(config).state_dir
    assert [refusal.rule for refusal in servers.refusals] == ["evidence.not_taken"]
    assert not servers.uploads
    # Charged and never begun: no batch was drawn.
    assert "begin" not in _kinds(ledger_path(state, "cardio"))
    assert "reserve" in _kinds(ledger_path(state, "cardio"))
    assert {"sink_failed", "round_refused"} <= set(_kinds(state / "log" / "log.jsonl"))


def test_the_default_sink_has_the_whole_log_of_a_silo(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    plan = servers.open_round(servers.job())
    servers.end_round(plan.context, servers.opened(plan, "finished"))
    servers.ended = True
    assert run_agent(config) == EXIT_DONE
    state = read_settings(config).state_dir
    assert "begin" in _kinds(ledger_path(state, "cardio"))
    assert (state / "audit.jsonl").read_bytes() == (state / "log" / "log.jsonl").read_bytes()
