"""The systemd units: what verifies, how exposed they are, and that a refusal is not restarted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.validators import DEPLOY, directives, ran, tool

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
BINARY = "/opt/sealsum/bin/sealsum"
NEEDS_A_PERSON = "3 4 5 78"


def _by_name(units: list[Path]) -> list[str]:
    return [unit.stem for unit in units]


def test_there_is_a_unit_for_each_process_that_runs_alone() -> None:
    assert _by_name(UNITS) == [
        "sealsum-aggregator",
        "sealsum-registrar",
        "sealsum-share-server",
        "sealsum-silo",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=_by_name(UNITS))
def test_systemd_accepts_every_line(unit: Path, tmp_path: Path) -> None:
    placed = tmp_path / unit.name
    placed.write_text(unit.read_text().replace(BINARY, "/bin/true"))
    said = ran([tool("systemd-analyze", "systemd"), "verify", "--man=no", str(placed)])
    assert unit.name not in said, said


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=_by_name(UNITS))
def test_a_unit_is_exposed_less_than_two_of_ten(unit: Path) -> None:
    # A threshold of 19 means 1.9: systemd-analyze ends with 1 above it.
    said = ran([tool("systemd-analyze", "systemd"), "security", "--offline=yes", "--threshold=19", str(unit)])
    score = re.search(r"exposure level for \S+: ([0-9.]+)", said)
    assert score is not None, said
    assert float(score[1]) < 2


@pytest.mark.slow
@pytest.mark.parametrize("example", ["sealsum-silo.service.d/gpu", "sealsum-aggregator.service.d/postgresql"])
def test_systemd_accepts_the_drop_ins(example: str, tmp_path: Path) -> None:
    unit = DEPLOY / "systemd" / f"{example.partition('.service.d/')[0]}.service"
    placed = tmp_path / unit.name
    placed.write_text(unit.read_text().replace(BINARY, "/bin/true"))
    drop_in = tmp_path / f"{unit.name}.d" / "own.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((DEPLOY / "systemd" / f"{example}.conf.example").read_text())
    said = ran([tool("systemd-analyze", "systemd"), "verify", "--man=no", str(placed)])
    assert "own.conf" not in said, said
    assert unit.name not in said, said


@pytest.mark.parametrize("unit", UNITS, ids=_by_name(UNITS))
def test_a_refusal_is_not_restarted_and_state_is_private(unit: Path) -> None:
    service = {key: value for section, key, value in directives(unit) if section == "Service"}
    assert service["RestartPreventExitStatus"] == NEEDS_A_PERSON
    assert service["Restart"] == "on-failure"
    assert service["StateDirectoryMode"] == service["RuntimeDirectoryMode"] == "0700"
    assert service["UMask"] == "0077"
    assert service["User"] == "sealsum"
    assert service["ExecStart"].startswith(f"{BINARY} ")


def test_what_one_unit_may_not_do_no_other_may() -> None:
    """Hardening is the same in each, except that PyTorch must be able to compile, and that the silo's worker
    takes namespaces in which it has neither network nor keys (ADR 46)."""
    confined = {}
    for unit in UNITS:
        lines = [f"{key}={value}" for section, key, value in directives(unit) if section == "Service"]
        confined[unit.stem] = lines[lines.index("CapabilityBoundingSet=") :]
    silo = confined.pop("sealsum-silo")
    assert len({tuple(lines) for lines in confined.values()}) == 1
    server = set(confined["sealsum-aggregator"])
    assert server - set(silo) == {"MemoryDenyWriteExecute=yes", "RestrictNamespaces=yes"}
    assert set(silo) - server == {
        "RestrictNamespaces=user net mnt",
        "PrivateMounts=yes",
        "SystemCallFilter=mount setpriority",
    }
