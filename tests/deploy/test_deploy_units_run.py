"""The units' own command lines, run: they serve with the settings that are shipped, drain, and end with 78.

systemd itself runs in no CI container; its part here is played by hand: the directories it would make, the
variables it would fill in. Only binary, directories and ports are others than in the files.
"""

from __future__ import annotations

import json
import shlex
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aggregator.enrolment.authority import found_alone
from sealsum.policy_file import read_policy
from tests.deploy.validators import DEPLOY, directives
from tests.federation import Federation

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
CONFIGURATION = 78
SYSTEMD = DEPLOY / "systemd"


def _environment(unit: str) -> dict[str, str]:
    lines = directives(SYSTEMD / f"sealsum-{unit}.service")
    if not any(key == "EnvironmentFile" for _, key, _ in lines):
        return {}
    pairs = [
        line.partition("=") for line in (SYSTEMD / "registrar.env").read_text().splitlines() if "=" in line
    ]
    return {name: value for name, _, value in pairs}


def _command(unit: str, root: Path) -> list[str]:
    """ExecStart= under another root, its variables filled in."""
    lines = directives(SYSTEMD / f"sealsum-{unit}.service")
    (line,) = [value for _, key, value in lines if key == "ExecStart"]
    for name, value in _environment(unit).items():
        line = line.replace(f"${{{name}}}", value).replace(f"${name}", value)
    assert "$" not in line
    binary, *arguments = shlex.split(line)
    assert binary == "/opt/sealsum/bin/sealsum"
    moved = [f"{root}{one}" if one.startswith(("/etc/", "/var/")) else one for one in arguments]
    return [sys.executable, "-m", "sealsum", *[one.replace("0.0.0.0:7400", "127.0.0.1:0") for one in moved]]


def _place_settings(unit: str, root: Path) -> None:
    """The shipped settings with this test's directories, on free ports."""
    text = (SYSTEMD / "config" / f"{unit}.yaml").read_text()
    text = text.replace("/var/lib/", f"{root}/var/lib/").replace("/etc/sealsum/", f"{root}/etc/sealsum/")
    for port in ("0.0.0.0:7410", "0.0.0.0:7420", "127.0.0.1:9464"):
        text = text.replace(port, "127.0.0.1:0")
    (root / "etc" / "sealsum").mkdir(parents=True)
    (root / "etc" / "sealsum" / f"{unit}.yaml").write_text(text)


def _serves_and_drains(command: list[str]) -> None:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        seen = []
        for line in process.stderr:
            seen.append(line)
            if json.loads(line)["event"] == "listening":
                break
        else:
            raise AssertionError(f"ended with {process.wait()}: {''.join(seen)}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(("unit", "party"), [("aggregator", "aggregator"), ("share-server", "server-0")])
def test_a_servers_unit_serves_from_the_shipped_settings_and_drains(
    unit: str, party: str, tmp_path: Path
) -> None:
    _place_settings(unit, tmp_path)
    federation = Federation()
    state = tmp_path / "var" / "lib" / f"sealsum-{unit}"
    state.mkdir(mode=0o700, parents=True)
    federation.identity(party, state)
    (state / "charter.json").rename(tmp_path / "etc" / "sealsum" / "charter.json")
    _serves_and_drains(_command(unit, tmp_path))
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    made = [file for file in state.rglob("*") if file.is_file() and file.name in ("server.db", "audit.jsonl")]
    assert made
    assert not [file for file in made if stat.S_IMODE(file.stat().st_mode) & 0o077]


def test_the_registrars_unit_serves_what_was_founded(tmp_path: Path) -> None:
    state = tmp_path / "var" / "lib" / "sealsum-registrar"
    state.parent.mkdir(parents=True)
    found_alone(state, "cardio", read_policy("demo-hospitals", ()), datetime.now(UTC))
    _serves_and_drains(_command("registrar", tmp_path))


@pytest.mark.parametrize("unit", ["aggregator", "silo"])
def test_a_unit_without_settings_ends_with_a_code_that_is_not_restarted(unit: str, tmp_path: Path) -> None:
    ended = subprocess.run(_command(unit, tmp_path), capture_output=True, text=True, timeout=120)
    assert ended.returncode == CONFIGURATION, ended.stderr
    assert f"{unit}.yaml: cannot be read" in ended.stderr
