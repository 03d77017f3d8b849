"""What a silo notices of a charter that changes, and of an aggregator that does not pass it on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from privacy.canonical import canonical_bytes
from privacy.errors import OutOfOrder
from privacy.keystore import load_identity
from privacy.wire.charter import EndorsedCharter, parse_charter
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import read_settings
from tests.unit.silo_agent.loopback import Loopback, patients


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def started(config: Path) -> Agent:
    settings = read_settings(config)
    return Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))


def next_in_force(servers: Loopback) -> EndorsedCharter:
    """The officers put epoch 2 in force at the servers."""
    federation = servers.federation
    federation.charter, federation.epoch = federation.next_charter(), 2
    federation.endorsed_charter = federation.endorse(federation.charter)
    return federation.endorsed_charter


def test_a_running_silo_follows_an_offer_to_the_charter_that_it_rests_on(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    agent = started(config)
    try:
        later = next_in_force(servers)
        plan = servers.open_round(servers.job(rounds=1))
        assert plan.charter == servers.federation.charter.digest
        assert agent.run(until_idle=True) == EXIT_DONE
    finally:
        agent.close()
    assert parse_charter((tmp_path / "state" / "charter.json").read_bytes()) == later
    assert f"/v1/rounds/{plan.context}/manifests" in servers.uploads


def test_a_silo_that_knows_the_charter_takes_no_part_in_a_round_under_the_one_before(
    servers: Loopback, tmp_path: Path
) -> None:
    """An aggregator that keeps a loose policy alive finds nobody among those who have heard."""
    config = servers.silo_files(tmp_path, patients(80))
    old = servers.federation.charter
    job = servers.job(rounds=1)
    later = next_in_force(servers)
    agent = started(config)
    try:
        servers.federation.charter, servers.federation.epoch = old, 1
        plan = servers.open_round(job)
        assert plan.roster_epoch == 1
        agent._answer(servers.offers[-1])
    finally:
        agent.close()
    assert parse_charter((tmp_path / "state" / "charter.json").read_bytes()) == later
    [refusal] = servers.refusals
    assert refusal.rule == "offer.signature", "the job in it is signed under a charter that is not in force"
    assert f"/v1/rounds/{plan.context}/manifests" not in servers.uploads


def test_a_silo_that_was_handed_the_charter_finds_out_who_withholds_it(
    servers: Loopback, tmp_path: Path
) -> None:
    """The officers' file in its state directory; the aggregator still shows the one before."""
    config = servers.silo_files(tmp_path, patients(80))
    old = servers.federation.endorsed_charter
    (tmp_path / "state" / "charter.json").write_bytes(canonical_bytes(next_in_force(servers)))
    servers.federation.endorsed_charter = old
    with pytest.raises(OutOfOrder, match="an older charter is never taken back"):
        started(config)
