"""Settings, refusals, round memory and commands: what is wrong is named, what is private stays in."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from policies.findings import PolicyInvalid
from policies.loader import policy_digest
from policies.profiles import profile_text
from privacy import errors
from privacy.chain import parse_entry
from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import Digest, PartyId, SiloId
from privacy.keystore import load_identity
from privacy.secagg.he import parameters
from silo_agent.cli import silo
from silo_agent.ledger.admission import CapReached
from silo_agent.ledger.books import Books, ledger_path
from silo_agent.own_policy import load_own_policy
from silo_agent.refusals import refusal_of
from silo_agent.round_memory import RoundMemory
from silo_agent.settings import read_settings
from tests.federation import Federation

GOOD: dict[str, Any] = {
    "state_dir": "state",
    "aggregator_url": "https://aggregator.test",
    "threat_model": "demo-hospitals",
    "datasets": {"cardio": {"path": "cardio.csv", "purpose": "research"}},
}
CAPS = {"round": 1, "job": 2, "lifetime": 3}


def _write(tmp_path: Path, settings: dict[str, Any]) -> Path:
    path = tmp_path / "silo.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_good_settings_are_read_with_paths_beside_their_file(tmp_path: Path) -> None:
    settings = read_settings(_write(tmp_path, GOOD))
    assert settings.state_dir == tmp_path / "state"
    assert settings.datasets["cardio"].path == tmp_path / "cardio.csv"
    assert settings.datasets["cardio"].purpose == ("research",)
    assert load_own_policy(settings).model.metadata.name == "demo-hospitals"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregator_url": "http://x"}, "aggregator_url"),
        ({"state_dir": None}, "state_dir"),
        ({"telemetry": True}, "telemetry: Extra inputs are not permitted"),
        ({"datasets": {}}, "datasets"),
        ({"datasets": {"c": {"path": "x"}}}, "datasets.c.purpose: Field required; got nothing"),
        ({"model_adapters": {"own": "rm -rf"}}, "model_adapters.own"),
        (
            {"datasets": {"c": {"path": "x", "purpose": "p", "budget": {
                "epsilon": {**CAPS, "job": 0.5}, "delta_max": 1e-5}}}},
            "epsilon.round <= epsilon.job",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_what_came(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_settings(_write(tmp_path, {**GOOD, **changes}))


@pytest.mark.parametrize(
    "text", ["- a list", "a: [", "state_dir: a\nstate_dir: b\n", "x: !!python/object:os.system"]
)
def test_what_is_not_a_plain_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "silo.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"silo\.yaml"):
        read_settings(tmp_path / "silo.yaml")


def test_an_unknown_profile_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for name, message in (("no-such-profile", "no-such-profile"), ("own.yaml", "cannot be read")):
        settings = read_settings(_write(tmp_path, {**GOOD, "threat_model": name}))
        with pytest.raises(ConfigurationError, match=message):
            load_own_policy(settings)


# --- refusals ---


def _all_errors() -> list[type[SealsumError]]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, SealsumError)]


@pytest.mark.parametrize("kind", _all_errors())
def test_a_refusal_never_carries_an_errors_own_words(kind: type[SealsumError]) -> None:
    refusal = refusal_of(kind("/var/lib/cardio.csv: row 417, SECRET"), SiloId(PartyId("silo-1")))
    assert "SECRET" not in refusal.model_dump_json()
    assert "417" not in refusal.model_dump_json()


def test_a_budget_refusal_names_the_cap_but_not_its_number() -> None:
    refusal = refusal_of(CapReached("epsilon.lifetime", 7.125, 7.25), SiloId(PartyId("silo-1")))
    assert refusal.rule == "budget.epsilon.lifetime"
    assert "7.1" not in refusal.model_dump_json()


# --- rounds ---


def test_the_last_round_survives_a_restart(tmp_path: Path) -> None:
    job = Digest("a" * 64)
    RoundMemory(tmp_path / "rounds.json").remember(job, 3)
    memory = RoundMemory(tmp_path / "rounds.json")
    assert memory.last_round(job) == 3
    assert memory.last_round(Digest("b" * 64)) == 0


def test_a_memory_that_does_not_read_back_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "rounds.json").write_text("{}")
    with pytest.raises(SealsumError, match="does not read back"):
        RoundMemory(tmp_path / "rounds.json")


# --- commands ---


def _enrolled(tmp_path: Path) -> Path:
    Federation().identity("silo-1", tmp_path / "state")
    return _write(tmp_path, GOOD)


def test_the_budget_of_an_unused_dataset_is_whole(tmp_path: Path) -> None:
    config = _enrolled(tmp_path)
    result = CliRunner().invoke(silo, ["budget", "--config", str(config), "--json"])
    assert result.exit_code == 0, result.output
    [dataset] = json.loads(result.output)["datasets"].values()
    assert dataset["spent"] == dict.fromkeys(("epsilon", "epsilon_fallback", "delta", "rounds", "begun"), 0)
    assert dataset["remaining"]["epsilon"] == dataset["caps"]["epsilon"]["lifetime"]
    assert CliRunner().invoke(silo, ["budget", "--config", str(config)]).exit_code == 0


def test_a_ledger_is_printed_only_if_it_verifies(tmp_path: Path) -> None:
    config = _enrolled(tmp_path)
    settings = read_settings(config)
    identity = load_identity(settings.state_dir)
    books = Books(identity, settings, load_own_policy(settings), datetime.now(UTC))
    books.assert_whole((), datetime.now(UTC))
    books.close()
    arguments = ["ledger", "--config", str(config), "--dataset", "cardio"]
    result = CliRunner().invoke(silo, [*arguments, "--json"])
    assert [parse_entry(line.encode()).kind for line in result.output.splitlines()] == ["open"]
    assert CliRunner().invoke(silo, arguments).exit_code == 0
    path = ledger_path(settings.state_dir, "cardio")
    path.write_bytes(path.read_bytes().replace(b'"patient"', b'"record"', 1))
    damaged = CliRunner().invoke(silo, arguments)
    assert isinstance(damaged.exception, errors.LedgerDamaged)
    unknown = CliRunner().invoke(silo, [*arguments[:-1], "other"])
    assert isinstance(unknown.exception, ConfigurationError)


def test_looking_at_a_budget_loads_no_learning_framework() -> None:
    code = "import sys, silo_agent.cli; sys.exit('torch' in sys.modules or 'httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("link", ["same", "symlink", "hardlink"])
def test_one_file_under_two_names_would_have_two_budgets_and_is_refused(tmp_path: Path, link: str) -> None:
    (tmp_path / "cardio.csv").write_text("a\n")
    other = tmp_path / ("cardio.csv" if link == "same" else "other.csv")
    if link == "symlink":
        other.symlink_to(tmp_path / "cardio.csv")
    if link == "hardlink":
        other.hardlink_to(tmp_path / "cardio.csv")
    datasets = {
        "cardio": {"path": "cardio.csv", "purpose": "research"},
        "heart": {"path": other.name, "purpose": "care"},
    }
    with pytest.raises(ConfigurationError, match="cardio and heart are one file"):
        read_settings(_write(tmp_path, {**GOOD, "datasets": datasets}))


def test_a_renamed_dataset_does_not_begin_with_nothing_spent(tmp_path: Path) -> None:
    identity = Federation().identity("silo-1", tmp_path / "state")
    settings = read_settings(_write(tmp_path, GOOD))
    Books(identity, settings, load_own_policy(settings), datetime.now(UTC)).close()
    renamed = read_settings(_write(tmp_path, {**GOOD, "datasets": {"cardio-2": GOOD["datasets"]["cardio"]}}))
    with pytest.raises(ConfigurationError, match="no dataset 'cardio'; if it was renamed"):
        Books(identity, renamed, load_own_policy(renamed), datetime.now(UTC))


@pytest.mark.parametrize("profile", ["demo-bfv", "demo-ckks"])
def test_an_agent_without_the_schemes_library_ends_at_once_and_names_the_extra(
    tmp_path: Path, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "find_spec", lambda name: None)
    Federation().identity("silo-1", tmp_path / "state")
    config = _write(tmp_path, {**GOOD, "threat_model": profile})
    result = CliRunner().invoke(silo, ["run", "--config", str(config)])
    assert isinstance(result.exception, ConfigurationError)
    assert "sealsum[he]" in str(result.exception)
    budget = CliRunner().invoke(silo, ["budget", "--config", str(config), "--json"])
    assert budget.exit_code == 0, "looking at a budget needs no such library"


def test_a_silo_names_the_files_of_what_its_own_threat_model_extends(tmp_path: Path) -> None:
    parent = profile_text("demo-hospitals").replace("rounds_max: 100", "rounds_max: 90")
    (tmp_path / "group.yaml").write_text(parent, "utf-8")
    extends = f"version: 1, extends: 'sha256:{policy_digest(parent)}'"
    (tmp_path / "own.yaml").write_text(parent.replace("version: 1", extends, 1), "utf-8")
    alone = read_settings(_write(tmp_path, {**GOOD, "threat_model": "./own.yaml"}))
    with pytest.raises(PolicyInvalid, match="extends_unknown"):
        load_own_policy(alone)
    with_parent = {**GOOD, "threat_model": "./own.yaml", "threat_model_parents": ["group.yaml"]}
    assert load_own_policy(read_settings(_write(tmp_path, with_parent))).parents == (parent,)
