"""A silo's state is copied, restored or cloned: its agent does not go on from what others know is old."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from privacy.errors import ConfigurationError, LedgerDamaged, Unprocessable
from privacy.keystore import load_identity
from privacy.wire.ledger_heads import WitnessedHead
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.own_policy import load_own_policy
from silo_agent.problems import Unreachable
from silo_agent.settings import read_settings
from silo_agent.transport import FederationClient
from tests.unit.silo_agent.loopback import Loopback, patients

LACKS = r"expected entry \d+ .* which (aggregator|server-\d) has seen .* restore .* write-off"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def start(config: Path) -> Agent:
    """The agent over that silo's state directory."""
    settings = read_settings(config)
    return Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))


def run(config: Path) -> int:
    """Serve until the job is over."""
    agent = start(config)
    try:
        return agent.run(until_idle=True)
    finally:
        agent.close()


def _rounds(servers: Loopback, tmp_path: Path) -> Path:
    """One round is done, then the state directory is copied, then another round is done."""
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job(rounds=2)
    servers.open_round(job, 1)
    servers.ended = True
    inner = servers.result_of
    servers.result_of = lambda plan: inner(plan, "finished")
    assert run(config) == EXIT_DONE
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    servers.open_round(job, 2)
    assert run(config) == EXIT_DONE
    return config


def _restore(tmp_path: Path, *names: str) -> None:
    for name in names:
        shutil.copy(tmp_path / "backup" / name, tmp_path / "state" / name)


def test_a_state_directory_restored_as_a_whole_does_not_start(servers: Loopback, tmp_path: Path) -> None:
    config = _rounds(servers, tmp_path)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    with pytest.raises(LedgerDamaged, match=LACKS) as refused:
        run(config)
    assert refused.value.exit_code == 5
    assert "'cardio'" in str(refused.value)


def test_a_journal_restored_with_its_head_file_does_not_start(servers: Loopback, tmp_path: Path) -> None:
    config = _rounds(servers, tmp_path)
    _restore(tmp_path, "ledger/cardio.jsonl", "ledger/cardio.head")
    with pytest.raises(LedgerDamaged, match=LACKS):
        run(config)


def test_a_journal_restored_alone_is_caught_by_its_head_file(servers: Loopback, tmp_path: Path) -> None:
    config = _rounds(servers, tmp_path)
    _restore(tmp_path, "ledger/cardio.jsonl")
    with pytest.raises(LedgerDamaged, match="a truncated ledger"):
        run(config)


def test_a_ledger_that_is_gone_does_not_begin_anew(servers: Loopback, tmp_path: Path) -> None:
    config = _rounds(servers, tmp_path)
    shutil.rmtree(tmp_path / "state" / "ledger")
    with pytest.raises(LedgerDamaged, match=LACKS):
        run(config)


def test_a_clone_that_was_made_before_a_round_does_not_start(servers: Loopback, tmp_path: Path) -> None:
    _rounds(servers, tmp_path)
    clone = tmp_path / "clone"
    shutil.copytree(tmp_path / "backup", clone / "state")
    shutil.copy(tmp_path / "cardio.csv", clone)
    shutil.copy(tmp_path / "silo.yaml", clone)
    with pytest.raises(LedgerDamaged, match="another copy of this silo is in use"):
        run(clone / "silo.yaml")


def test_an_untouched_state_starts_again(servers: Loopback, tmp_path: Path) -> None:
    config = _rounds(servers, tmp_path)
    assert run(config) == EXIT_DONE


def test_two_agents_on_one_state_directory_exclude_each_other(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    first = start(config)
    with pytest.raises(ConfigurationError, match="another process has this ledger open"):
        start(config)
    first.close()
    start(config).close()


def test_a_server_cannot_invent_a_head(servers: Loopback, tmp_path: Path) -> None:
    config = _rounds(servers, tmp_path)
    [shown] = servers.heads()
    offer = {one.context: one for one in servers.offers}
    other = next(one for ctx, one in offer.items() if ctx != shown.manifest.context)
    manifest = servers.federation.share(servers.plans[shown.manifest.context], "silo-1").manifest  # type: ignore[index]  # a digest
    forged = servers.federation.sign(manifest, "manifest", shown.manifest.context, "silo-2")
    forged = forged.model_copy(update={"sender": "silo-1"})
    lies = {
        "did not sign": WitnessedHead(offer=shown.offer, manifest=forged),
        "the offer that its manifest answers": WitnessedHead(offer=other, manifest=shown.manifest),
    }
    for said, lie in lies.items():
        servers.heads = lambda lie=lie: (lie,)  # type: ignore[method-assign, misc]  # a server that lies
        with pytest.raises((LedgerDamaged, Unprocessable), match=said):
            run(config)


def test_an_agent_does_not_go_on_until_every_server_has_said_what_it_has_seen(
    servers: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))
    asked: list[str] = []
    honest = FederationClient.get_bytes

    def deaf(client: FederationClient, path: str, **rest: Any) -> bytes:
        if path == "/v1/ledger-heads":
            asked.append(path)
            if len(asked) == 3:  # the aggregator, server-0, server-1
                raise Unreachable("server-1: no answer")
        return honest(client, path, **rest)

    monkeypatch.setattr(FederationClient, "get_bytes", deaf)
    with pytest.raises(Unreachable):
        run(config)
    assert not servers.uploads
    assert run(config) == EXIT_DONE
    assert len(asked) == 6


def test_a_dataset_under_a_new_name_does_not_begin_with_a_whole_budget(
    servers: Loopback, tmp_path: Path
) -> None:
    config = _rounds(servers, tmp_path)
    document = yaml.safe_load(config.read_text())
    (name, terms) = next(iter(document["datasets"].items()))
    renamed = document | {"datasets": {"renamed": terms}}
    renamed["approval_rules"] = {
        rule: one | {"datasets": ["renamed"]} for rule, one in document.get("approval_rules", {}).items()
    }
    config.write_text(yaml.safe_dump(renamed))
    with pytest.raises(ConfigurationError, match=f"silo.yaml has no dataset '{name}'"):
        run(config)
    shutil.move(tmp_path / "state" / "ledger" / f"{name}.jsonl", tmp_path / "hidden.jsonl")
    with pytest.raises(LedgerDamaged, match=rf"expected {name}, of whose ledger .* retired_datasets"):
        run(config)
    config.write_text(yaml.safe_dump(renamed | {"retired_datasets": [name]}))
    assert run(config) == EXIT_DONE
    config.write_text(yaml.safe_dump(document | {"retired_datasets": [name]}))
    with pytest.raises(ConfigurationError, match="retired_datasets: expected none of datasets"):
        run(config)
