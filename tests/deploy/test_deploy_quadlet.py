"""The quadlet files: keys that podman knows, and a container that is as confined as elsewhere.

Debian's podman is older than quadlet, so no generator judges them in CI: the keys are held against those of
podman-systemd.unit(5), podman 5, that these files may use.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.validators import DEPLOY, directives

KNOWN = {
    "Container": {
        *("AddDevice", "DropCapability", "Exec", "Group", "HealthCmd", "HealthInterval", "HealthRetries"),
        *(
            "HealthStartPeriod",
            "HealthTimeout",
            "Image",
            "NoNewPrivileges",
            "PidsLimit",
            "PublishPort",
            "Pull",
        ),
        *("ReadOnly", "ReadOnlyTmpfs", "Tmpfs", "User", "UserNS", "Volume"),
    },
    "Volume": {"VolumeName"},
}
CONTAINERS = sorted((DEPLOY / "quadlet").glob("*.container"))


@pytest.mark.parametrize("file", sorted((DEPLOY / "quadlet").iterdir()), ids=lambda file: file.name)
def test_every_key_is_one_of_podmans(file: Path) -> None:
    for section, key, _ in directives(file):
        if section in KNOWN:
            assert key in KNOWN[section], f"[{section}] {key}"
        else:
            assert section in {"Unit", "Service", "Install"}


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.stem)
def test_a_container_runs_as_nobody_with_nothing_and_is_not_restarted_after_a_refusal(file: Path) -> None:
    lines = directives(file)
    container = {key: value for section, key, value in lines if section == "Container"}
    assert container["User"] == container["Group"] == "65532"
    assert container["ReadOnly"] == container["NoNewPrivileges"] == "true"
    assert container["DropCapability"] == "all"
    assert container["Pull"] == "never"
    assert ("Service", "RestartPreventExitStatus", "3 4 5 78") in lines
    assert ("PublishPort" in container) == (file.stem != "sealsum-silo")
    own = f"{file.stem}.volume:/var/lib/sealsum:Z"
    assert ("Container", "Volume", own) in lines
    assert file.with_suffix(".volume").exists()
