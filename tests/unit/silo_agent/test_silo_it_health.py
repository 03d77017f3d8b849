"""A running agent says how it is; every metric that docs/metrics.md promises of a silo is there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from privacy.errors import SealsumError
from privacy.keystore import load_identity
from silo_agent.agent import Agent
from silo_agent.contact import Contact
from silo_agent.health import CONTACT_S, assert_heard, assert_same_time, health_of
from silo_agent.meters import SiloMeters
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import SiloSettings, read_settings
from tests.health_world import documented, get, shown, value
from tests.unit.silo_agent.loopback import Loopback, patients


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


@dataclass(frozen=True)
class Running:
    settings: SiloSettings
    agent: Agent
    url: str


@pytest.fixture
def running(servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Running]:
    """An agent between rounds, with its health listener."""
    caplog.set_level(logging.INFO)
    config = servers.silo_files(tmp_path, patients(80), health={"listen": "127.0.0.1:0"})
    settings = read_settings(config)
    identity = load_identity(settings.state_dir)
    agent = Agent(settings, identity, load_own_policy(settings))
    with health_of(settings, identity, agent, SiloMeters(settings.state_dir)):
        said = next(record for record in caplog.records if record.getMessage() == "health")
        yield Running(settings, agent, vars(said)["url"])
    agent.close()


def test_a_silo_shows_every_documented_metric_and_no_other(servers: Loopback, running: Running) -> None:
    servers.open_round(servers.job(rounds=1))
    assert running.agent.run(until_idle=True) == 0
    exposition = get(running.url, "/metrics").text
    expected = {name: labels for name, (labels, where) in documented().items() if where in ("all", "silo")}
    found = shown(exposition)
    assert found.keys() == expected.keys()
    unlabelled = {"sealsum_silo_refusals_total"}  # none was refused, so no rule is known
    assert {name: frozenset(labels) for name, labels in found.items() if name not in unlabelled} == {
        name: labels for name, labels in expected.items() if name not in unlabelled
    }
    assert value(exposition, "sealsum_silo_rounds_total", outcome="opened") == 1
    assert value(exposition, "sealsum_silo_training_seconds_count") == 1
    assert value(exposition, "sealsum_silo_sent_bytes_total") > 0
    assert value(exposition, "sealsum_log_entries_total", kind="reserved") == 1
    spent = value(exposition, "sealsum_silo_epsilon_spent", dataset="cardio")
    assert 0 < spent <= value(exposition, "sealsum_silo_epsilon_limit", dataset="cardio")
    assert value(exposition, "sealsum_charter_epoch") == 1


def test_an_agent_that_hears_its_servers_is_ready(running: Running) -> None:
    said = get(running.url, "/readyz?verbose").json()
    assert said["status"] == "ready", said
    names = [one["check"] for one in said["checks"]]
    assert names == ["state_dir", "certificate", "aggregator", "clock", "datasets", "audit_sinks"]


def test_a_full_disk_makes_the_agent_unready_and_its_silo_refuse_the_round_uncharged(
    servers: Loopback, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policies.health.checks.free_bytes", lambda _directory: 1 << 20)
    assert get(running.url, "/readyz").status_code == 503
    plan = servers.open_round(servers.job(rounds=1))
    servers.ended = True
    servers.end_round(plan.context)
    running.agent.run(until_idle=True)
    assert len(servers.refusals) == 1
    exposition = get(running.url, "/metrics").text
    assert value(exposition, "sealsum_silo_rounds_total", outcome="refused") == 1
    assert value(exposition, "sealsum_silo_epsilon_spent", dataset="cardio") == 0


def test_a_silo_that_hears_nobody_or_lives_at_another_time_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contact = Contact()
    with pytest.raises(SealsumError, match="the last one came never"):
        assert_heard(contact)
    contact.heard("Thu, 01 Jan 2026 00:00:00 GMT")
    assert assert_heard(contact) == "answered 0 s ago"
    with pytest.raises(SealsumError, match=r"this machine is \+\d+ s ahead"):
        assert_same_time(contact)
    contact.heard(None)
    assert assert_same_time(contact) == "no server has told its time"
    monkeypatch.setattr("silo_agent.contact.time.monotonic", lambda: 1e9 + CONTACT_S)
    with pytest.raises(SealsumError, match="within 120 s"):
        assert_heard(contact)
