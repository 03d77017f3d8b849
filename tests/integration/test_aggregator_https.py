"""Real processes: mutual TLS, callers known by their certificates, a drain at SIGTERM."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from privacy.keystore import Identity
from tests.federation import Federation

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def _start(command: str, config: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sealsum", command, "serve", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "listening":
            return process, event["url"]
    raise AssertionError(f"{command} ended with {process.wait()} before it listened")


def _client(identity: Identity, url: str) -> httpx.Client:
    return httpx.Client(base_url=url, verify=identity.client_context, timeout=30)


@pytest.mark.parametrize(("command", "party"), [("aggregator", "aggregator"), ("share-server", "server-0")])
def test_a_server_knows_its_callers_and_drains_in_the_middle_of_their_polls(
    tmp_path: Path, command: str, party: str
) -> None:
    federation = Federation()
    federation.identity(party, tmp_path / party)
    silo = federation.identity("silo-1", tmp_path / "silo-1")
    researcher = federation.identity("researcher", tmp_path / "researcher")
    config = tmp_path / "server.yaml"
    config.write_text(f"state_dir: {party}\nlisten: 127.0.0.1:0\n")
    process, url = _start(command, config)
    try:
        nobody = ssl.create_default_context(cafile=str(tmp_path / "silo-1" / "ca.pem"))
        with httpx.Client(base_url=url, verify=nobody) as client:
            assert client.get("/livez").status_code == 200
            assert client.get("/v1/log").status_code == 401
        with _client(silo, url) as client:
            path = "/v1/offers" if command == "aggregator" else "/v1/operators"
            assert client.get(path).status_code == (204 if command == "aggregator" else 403)
        with _client(researcher, url) as client:
            assert client.get("/v1/charter" if command == "aggregator" else "/v1/log").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_a_state_directory_of_another_role_is_a_configuration_error(tmp_path: Path) -> None:
    federation = Federation()
    federation.identity("silo-1", tmp_path / "state")
    config = tmp_path / "server.yaml"
    config.write_text("state_dir: state\nlisten: 127.0.0.1:0\n")
    ended = subprocess.run(
        [sys.executable, "-m", "sealsum", "aggregator", "serve", "--config", str(config)],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 78
    assert "expected the state of a party enrolled as aggregator, got silo" in ended.stderr
    assert "Traceback" not in ended.stderr
