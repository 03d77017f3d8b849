"""The settings files that deploy/ ships are read by the programs they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator.settings import AggregatorSettings, ServerSettings, ShareServerSettings, load_settings
from silo_agent.settings import read_settings
from tests.deploy.validators import DEPLOY, directives

MODELS: dict[str, type[ServerSettings]] = {
    "aggregator": AggregatorSettings,
    "share-server": ShareServerSettings,
}


@pytest.mark.parametrize("role", MODELS)
def test_a_servers_settings_name_the_directory_that_its_unit_makes(role: str) -> None:
    settings = load_settings(DEPLOY / "systemd" / "config" / f"{role}.yaml", MODELS[role])
    unit = directives(DEPLOY / "systemd" / f"sealsum-{role}.service")
    made = next(value for _, key, value in unit if key == "StateDirectory")
    assert settings.state_dir == Path("/var/lib") / made
    assert settings.health is not None
    assert settings.health.listen == "127.0.0.1:9464"


@pytest.mark.parametrize("role", MODELS)
def test_a_servers_settings_name_the_volume_of_its_container(role: str) -> None:
    settings = load_settings(DEPLOY / "compose" / "config" / f"{role}.yaml", MODELS[role])
    assert settings.state_dir == Path("/var/lib/sealsum")
    assert settings.listen.startswith("0.0.0.0:")


@pytest.mark.parametrize("place", ["systemd", "compose"])
def test_a_silos_settings_are_read_and_name_its_state(place: str) -> None:
    settings = read_settings(DEPLOY / place / "config" / "silo.yaml")
    assert settings.state_dir == Path("/var/lib/sealsum")
    assert settings.health is not None
