"""The settings files that deploy/ ships are read by the programs they are for."""

from __future__ import annotations

import re
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
@pytest.mark.parametrize("role", MODELS)
def test_what_a_servers_settings_offer_as_comments_is_read_once_it_is_uncommented(
    place: str, role: str, tmp_path: Path
) -> None:
    shipped = (DEPLOY / place / "config" / f"{role}.yaml").read_text("utf-8")
    offered = re.sub(r"^# (?=\s*[a-z_0-9]+:(\s|$))", "", shipped, flags=re.MULTILINE)
    (tmp_path / "server.yaml").write_text(offered)
    settings = load_settings(tmp_path / "server.yaml", MODELS[role])
    assert settings.blobs is not None
    assert settings.blobs.prefix == role
    assert (settings.silo_bytes_max, settings.storage_bytes_max) == (4 << 30, 64 << 30)
    assert (settings.collect_after_s, settings.collect_every_s) == (86_400, 3600)


@pytest.mark.parametrize("place", ["systemd", "compose"])
def test_a_silos_settings_are_read_and_name_its_state(place: str) -> None:
    settings = read_settings(DEPLOY / place / "config" / "silo.yaml")
    assert settings.state_dir == Path("/var/lib/sealsum")
    assert settings.health is not None
