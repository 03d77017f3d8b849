"""Founding, inviting, enrolling and sealing as people do it: commands, files and a registrar over HTTPS."""

from __future__ import annotations

import json
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from click.testing import CliRunner, Result

from aggregator.enrolment.messages import MAX_ENROL_BYTES
from privacy.keystore import load_identity, write_secret
from privacy.roster import SEALED_TO, Role
from privacy.wire.charter import open_charter, parse_charter
from sealsum.cli import Root, cli
from sealsum.enrolment import aggregator, researcher, share_server, silo
from sealsum.lazy_group import Lazy
from tests.enrolment import ROSTER, found

pytestmark = pytest.mark.slow
ENROLL = {"silo": silo, "aggregator": aggregator, "share_server": share_server, "researcher": researcher}


def sealsum(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


class Alone(Root):
    """The root's error handling, without its commands."""

    table: ClassVar[Mapping[str, Lazy]] = {}


@dataclass
class Town:
    """A founded federation whose registrar runs as a process of its own."""

    home: Path
    authority: Path
    url: str
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    def invite(self, party: str, role: Role, *more: str) -> Path:
        who = next(guest for guest in ROSTER if guest.role == role)
        token = self.home / f"{party}.token"
        url = ["--url", f"https://{party}.example.org:8443"] if who.url else []
        result = sealsum(
            *("federation", "invite", str(self.authority), "--party", party, "--role", role),
            *("--legal-entity", f"Institution {party}", "--operator", f"Operator {party}", *url),
            *("--registrar-url", self.url, "--out", str(token), *more),
        )
        assert result.exit_code == 0, result.stderr
        return token

    def enroll(self, token: Path, role: Role) -> Result:
        """The command as the root attaches it, whatever else is installed."""
        state = self.home / "parties" / token.stem
        wrapped = Alone("sealsum")
        wrapped.add_command(ENROLL[role], "enroll")
        arguments = ["enroll", "--token-file", str(token), "--state", str(state), "--json"]
        return CliRunner().invoke(wrapped, arguments)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=30)
        self.log += rest.splitlines()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    authority = tmp_path / "authority"
    founded = sealsum(
        *("federation", "init", str(authority), "--name", "cardio-net", "--policy", "demo-hospitals")
    )
    assert founded.exit_code == 0, founded.stderr
    command = ["federation", "serve", str(authority), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([sys.executable, "-m", "sealsum", *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    listening = json.loads(line)
    assert listening["event"] == "listening"
    yield Town(tmp_path, authority, listening["url"], process, [line])
    if process.poll() is None:
        process.kill()
        process.communicate()


def get(town: Town, path: str) -> httpx.Response:
    context = ssl.create_default_context(cafile=str(town.authority / "ca.pem"))
    with httpx.Client(base_url=town.url, verify=context) as http:
        return http.get(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_federation_from_founding_to_charter(town: Town) -> None:
    assert get(town, "/v1/charter").status_code == 404

    secrets = []
    for who in ROSTER:
        token = town.invite(who.party, who.role)
        assert mode(token) == 0o600
        secrets.append(json.loads(token.read_bytes())["secret"])
        done = town.enroll(token, who.role)
        assert done.exit_code == 0, done.output
        assert secrets[-1] not in done.output

        state = town.home / "parties" / who.party
        identity = load_identity(state)
        assert identity.pin.party == who.party
        assert mode(state) == 0o700
        assert mode(state / "identity.key") == 0o600
        assert (state / "sealing.key").exists() == (who.role in SEALED_TO)
        assert identity.client_context.get_ca_certs()  # key and certificate load, and belong together

    out = town.home / "charter.json"
    sealed = sealsum("federation", "seal", str(town.authority), "--out", str(out), "--json")
    assert sealed.exit_code == 0, sealed.stderr
    charter = open_charter(
        parse_charter(get(town, "/v1/charter").content), identity.pin.officers, "cardio-net"
    ).charter
    assert json.loads(sealed.stdout)["charter"] == charter.digest
    assert out.read_bytes() == get(town, "/v1/charter").content
    for member in charter.members:
        keys = load_identity(town.home / "parties" / member.id)
        assert member.verify_key == keys.signing.verify_key
        assert member.sealing_key == (keys.sealing.public_hex if keys.sealing else "")

    shown = sealsum("federation", "show", str(town.authority), "--json")
    assert {party["state"] for party in json.loads(shown.stdout)["parties"]} == {"enrolled"}

    town.stop()
    assert town.process.returncode == 0
    log = "\n".join(town.log)
    assert log.count('"event": "enrolled"') == len(ROSTER)
    kept = [path for path in town.home.rglob("*") if path.is_file() and path.suffix != ".token"]
    for secret in secrets:
        assert secret not in log
        assert not any(secret.encode() in path.read_bytes() for path in kept)


def test_an_enrolled_party_renews_its_certificate(town: Town) -> None:
    token = town.invite("hospital-a", "silo")
    assert town.enroll(token, "silo").exit_code == 0
    state = town.home / "parties" / "hospital-a"
    before = (state / "identity.pem").read_bytes()
    done = sealsum("keys", "renew", "--state", str(state), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["party"] == "hospital-a"
    assert (state / "identity.pem").read_bytes() != before
    assert load_identity(state).client_context.get_ca_certs()
    town.stop()
    assert '"event": "renewed"' in "\n".join(town.log)
    gone = sealsum("keys", "renew", "--state", str(state))
    assert (gone.exit_code, "no answer" in gone.stderr) == (2, True)


def test_a_used_token_ends_with_the_registrars_words_and_leaves_no_key(town: Town) -> None:
    token = town.invite("hospital-a", "silo")
    assert town.enroll(token, "silo").exit_code == 0
    copy = town.home / "thief.token"
    write_secret(copy, token.read_bytes())
    refused = town.enroll(copy, "silo")
    assert refused.exit_code == 2
    assert "used already" in refused.stderr
    assert not (town.home / "parties" / "thief" / "identity.key").exists()


def test_the_registrar_counts_bodies_and_tells_strangers_nothing(town: Town) -> None:
    context = ssl.create_default_context(cafile=str(town.authority / "ca.pem"))
    with httpx.Client(base_url=town.url, verify=context) as http:
        large = http.post("/v1/enroll", content=b"x" * (MAX_ENROL_BYTES + 1))
        secret = "cd" * 32
        garbled = http.post("/v1/enroll", json={"party": "hospital-a", "secret": secret, "csr": 7})
        elsewhere = http.get("/v1/parties")
    assert large.status_code == 413
    assert garbled.status_code == 400
    assert garbled.headers["content-type"] == "application/problem+json"
    assert "csr" in garbled.json()["detail"]
    assert secret not in garbled.text
    assert elsewhere.status_code == 404


def test_a_registrar_of_another_ca_gets_nothing(town: Town, tmp_path: Path) -> None:
    token = town.invite("hospital-a", "silo")
    forged = json.loads(token.read_bytes())
    forged["ca"] = found(tmp_path / "elsewhere", now=datetime.now(UTC)).ca_pem
    write_secret(town.home / "forged.token", json.dumps(forged).encode())
    refused = town.enroll(town.home / "forged.token", "silo")
    assert refused.exit_code == 2
    assert "nothing was sent" in refused.stderr
    assert town.enroll(token, "silo").exit_code == 0
