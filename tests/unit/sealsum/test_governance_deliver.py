"""``sealsum federation deliver`` believes the officers, dials every server, and says what each answered."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from privacy.canonical import canonical_bytes
from privacy.wire.charter import EndorsedCharter
from sealsum import deliver_command
from sealsum.cli import cli
from silo_agent.transport import FederationClient
from tests.federation import Federation


class Servers:
    """Takes what is put; ``down`` refuses."""

    def __init__(self, down: str = "") -> None:
        self.down = down
        self.got: dict[str, bytes] = {}

    def handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.host.startswith(self.down or "nobody"):
            return httpx.Response(409, json={"type": "urn:sealsum:conflict", "title": "conflict"})
        assert (request.method, request.url.path) == ("PUT", "/v1/charter")
        self.got[request.url.host] = request.read()
        return httpx.Response(201)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation()


def deliver(
    servers: Servers,
    charter: EndorsedCharter,
    federation: Federation,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Result:
    transport = httpx.MockTransport(servers.handle)
    monkeypatch.setattr(
        deliver_command, "FederationClient", functools.partial(FederationClient, transport=transport)
    )
    federation.identity("silo-1", home / "state")
    (home / "charter.json").write_bytes(canonical_bytes(charter))
    arguments = [
        "federation",
        "deliver",
        str(home / "charter.json"),
        "--state",
        str(home / "state"),
        "--json",
    ]
    return CliRunner().invoke(cli, arguments)


def test_every_server_gets_the_very_bytes(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, later = Servers(), federation.endorse(federation.next_charter())
    done = deliver(servers, later, federation, tmp_path, monkeypatch)
    assert done.exit_code == 0, done.stderr
    assert servers.got == dict.fromkeys(
        ("aggregator.test", "server-0.test", "server-1.test"), canonical_bytes(later)
    )
    assert json.loads(done.stdout)["epoch"] == 2
    held = json.loads((tmp_path / "state" / "charter.json").read_bytes())
    assert held == federation.endorsed_charter.model_dump(mode="json"), "the agent takes it from the servers"


def test_a_server_that_refuses_is_named_and_the_others_are_told_all_the_same(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(down="aggregator")
    done = deliver(servers, federation.endorse(federation.next_charter()), federation, tmp_path, monkeypatch)
    assert done.exit_code == 2
    assert "not taken by aggregator" in done.stderr
    assert sorted(servers.got) == ["server-0.test", "server-1.test"]


def test_nothing_is_sent_of_a_charter_that_too_few_have_signed(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers()
    loose = federation.endorse(federation.next_charter(), by=["officer-2"])
    done = deliver(servers, loose, federation, tmp_path, monkeypatch)
    assert done.exit_code == 2
    assert "ask one of officer-1, officer-3" in done.stderr
    assert servers.got == {}
