"""The Compose file as Compose understands it: every service confined, nothing shared between parties."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deploy.validators import DEPLOY, ran, venv_tool

pytestmark = pytest.mark.slow
ROLES = ("aggregator", "registrar", "share-server", "silo")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """All services, with anchors and defaults filled in."""
    told = ran(
        [
            venv_tool("docker-compose"),
            "--file",
            str(DEPLOY / "compose" / "compose.yaml"),
            "--profile",
            "*",
            "config",
            "--format",
            "json",
        ]
    )
    found: dict[str, Any] = json.loads(told)["services"]
    assert sorted(found) == sorted(ROLES)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_a_service_runs_as_nobody_with_nothing(services: dict[str, Any], role: str) -> None:
    service = services[role]
    assert service["user"] == "65532:65532"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    assert service["healthcheck"]["test"][:2] == ["CMD", "python"]
    writable = [volume for volume in service["volumes"] if not volume.get("read_only")]
    assert [volume["target"] for volume in writable] == ["/var/lib/sealsum"]


def test_each_party_has_a_volume_of_its_own_and_starts_only_when_named(services: dict[str, Any]) -> None:
    states = [
        volume["source"]
        for role in ROLES
        for volume in services[role]["volumes"]
        if volume["target"] == "/var/lib/sealsum"
    ]
    assert len(set(states)) == len(ROLES)
    assert all(services[role]["profiles"] == [role] for role in ROLES)


def test_a_silo_opens_no_port(services: dict[str, Any]) -> None:
    assert not services["silo"].get("ports")
