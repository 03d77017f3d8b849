"""``sealsum login`` against a real OpenID provider (npm oidc-provider) and a real aggregator, both over TLS.

One person comes by a real browser (authorization code, PKCE, loopback redirect), one by the device flow.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from playwright.sync_api import sync_playwright

from tests.federation import Federation

OIDC = Path(__file__).parent / "oidc"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (OIDC / "node_modules" / "oidc-provider").is_dir(), reason="needs make oidc-provider (Node 20)"
    ),
]


@dataclass
class Site:
    """A federation's aggregator and an institution's login service."""

    root: Path
    issuer: str
    provider: subprocess.Popen[str]
    server: str

    def sealsum(self, *words: str) -> subprocess.Popen[str]:
        """A command of one person's account."""
        env = os.environ | {"XDG_STATE_HOME": str(self.root / "home"), "BROWSER": "true"}
        return subprocess.Popen(
            [sys.executable, "-m", "sealsum", *words],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def login(self, way: str) -> subprocess.Popen[str]:
        """``sealsum login``, begun."""
        ca, issuer_ca = str(self.root / "aggregator" / "ca.pem"), str(self.root / "issuer.pem")
        return self.sealsum(
            "login", "--server", self.server, "--ca", ca, "--issuer-ca", issuer_ca, f"--{way}", "--json"
        )

    def ran(self, *words: str) -> tuple[int, str, str]:
        """A command, to its end."""
        process = self.sealsum(*words)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def kept(self) -> dict[str, Any]:
        """What the login left on disk."""
        (path,) = (self.root / "home" / "sealsum" / "logins").glob("*.json")
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        return dict(json.loads(path.read_text()))

    def rotate(self) -> None:
        """New signing keys at the provider."""
        self.provider.send_signal(signal.SIGHUP)
        while _line(self.provider.stdout) != '{"rotated": true}\n':
            assert self.provider.poll() is None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    _issuer_certificate(tmp_path)
    files = [str(tmp_path / "issuer.key"), str(tmp_path / "issuer.pem")]
    with ExitStack() as undo:
        told = undo.enter_context((tmp_path / "provider.log").open("w"))
        log = undo.enter_context((tmp_path / "aggregator.log").open("w"))
        provider = undo.enter_context(_running(["node", str(OIDC / "provider.mjs"), *files], stderr=told))
        issuer = json.loads(_line(provider.stdout))["issuer"]
        Federation().identity("aggregator", tmp_path / "aggregator")
        config = tmp_path / "server.yaml"
        config.write_text(
            "state_dir: aggregator\nlisten: 127.0.0.1:0\n"
            f"oidc:\n  issuer: {issuer}\n  client_id: sealsum-cli\n  audience: urn:sealsum:testfed\n"
            "  ca: issuer.pem\n  roles: {cardio-site_admin: site_admin, cardio-auditor: auditor}\n"
        )
        serve = [sys.executable, "-m", "sealsum", "aggregator", "serve", "--config", str(config)]
        aggregator = undo.enter_context(_running(serve, stderr=log))
        yield Site(tmp_path, issuer, provider, _listening(aggregator, tmp_path / "aggregator.log"))


@contextmanager
def _running(command: list[str], stderr: IO[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_person_logs_in_by_device_and_does_what_her_role_may(site: Site) -> None:
    login = site.login("device")
    page = re.search(r"open (https://\S+) and confirm the code (\S+)", _line(login.stderr))
    assert page is not None
    _confirm(site, page[1], "site_admin")
    out, err = login.communicate(timeout=60)
    assert login.returncode == 0, err
    assert json.loads(out)["roles"] == ["site_admin"]

    code, out, err = site.ran(
        *("token", "new", "--role", "auditor", "--scope", "jobs", "--expires", "7", "--label", "x", "--json")
    )
    assert code == 0, err
    issued = json.loads(out)
    (site.root / "token").write_text(issued["token"])
    (site.root / "token").chmod(0o600)
    ca = str(site.root / "aggregator" / "ca.pem")
    by_token = ("--server", site.server, "--ca", ca, "--token-file", str(site.root / "token"))
    code, out, err = site.ran("whoami", *by_token, "--json")
    assert (code, json.loads(out)["scopes"]) == (0, ["jobs"]), err
    code, out, err = site.ran("token", "list", *by_token)
    assert code == 2
    assert "403 not allowed" in err

    code, out, err = site.ran("token", "revoke", issued["id"])
    assert code == 0, err
    code, out, err = site.ran("whoami", *by_token)
    assert code == 2
    assert "neither over nor revoked" in err

    for secret in (issued["token"], site.kept()["access_token"], site.kept()["refresh_token"]):
        assert secret not in (site.root / "aggregator.log").read_text()


def test_a_login_is_refreshed_survives_new_keys_and_ends_with_logout(site: Site) -> None:
    login = site.login("device")
    page = re.search(r"open (https://\S+) and", _line(login.stderr))
    assert page is not None
    _confirm(site, page[1], "auditor")
    _, err = login.communicate(timeout=60)
    assert login.returncode == 0, err
    before = site.kept()
    site.rotate()
    time.sleep(12)  # the provider's tokens live for 40 s, and are refreshed 30 s before their end
    code, out, err = site.ran("whoami", "--json")
    # The aggregator asks for unknown keys again after 30 s at the earliest.
    while code == 2 and "unknown one" in err and time.time() < before["expires_at"] + 60:
        time.sleep(5)
        code, out, err = site.ran("whoami", "--json")
    assert code == 0, err
    assert json.loads(out)["roles"] == ["auditor"]
    after = site.kept()
    assert after["access_token"] != before["access_token"]

    code, out, err = site.ran("logout", "--json")
    assert (code, json.loads(out)["revoked"]) == (0, True), err
    answer = _token_request(site, {"grant_type": "refresh_token", "refresh_token": after["refresh_token"]})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    code, out, err = site.ran("whoami")
    assert code == 78
    assert "not logged in" in err


def test_a_person_without_a_mapped_group_is_not_logged_in(site: Site) -> None:
    login = site.login("device")
    page = re.search(r"open (https://\S+) and", _line(login.stderr))
    assert page is not None
    _confirm(site, page[1], "gardener")
    _, err = login.communicate(timeout=60)
    assert login.returncode == 2
    assert "403 not allowed" in err
    assert not (site.root / "home").exists()


def test_a_device_code_works_once(site: Site) -> None:
    asked = {"client_id": "sealsum-cli", "scope": "openid offline_access", "resource": "urn:sealsum:testfed"}
    with _to_issuer(site) as http:
        begun = http.post("/device/auth", data=asked).json()
        _confirm(site, begun["verification_uri_complete"], "auditor")
    grant = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": begun["device_code"],
        "resource": "urn:sealsum:testfed",
    }
    assert _token_request(site, grant).status_code == 200
    replayed = _token_request(site, grant)
    assert (replayed.status_code, replayed.json()["error"]) == (400, "invalid_grant")


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium (apt-get install chromium)")
def test_a_person_logs_in_with_her_browser(site: Site, tmp_path: Path) -> None:
    login = site.login("browser")
    url = re.search(r"https://\S+", _line(login.stderr))
    assert url is not None
    assert "code_challenge_method=S256" in url[0]
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=CHROMIUM,
            headless=True,
            chromium_sandbox=False,
            args=list(FLAGS),
            ignore_https_errors=True,
        )
        page = context.new_page()
        page.goto(url[0])
        page.fill("input[name=login]", "auditor")
        page.fill("input[name=password]", "any")
        page.click("button[type=submit]")
        page.click("button[type=submit]")  # consent
        page.get_by_text("Sealsum has its answer").wait_for()
        context.close()
    out, err = login.communicate(timeout=60)
    assert login.returncode == 0, err
    who = json.loads(out)
    assert (who["name"], who["roles"], who["by"]) == ("auditor", ["auditor"], "oidc")


def _confirm(site: Site, url: str, account: str) -> None:
    """What the person does on her telephone: confirm the code, log in, consent."""
    with _to_issuer(site) as http:
        page = http.get(url)
        for _ in range(6):
            if "Sign-in Success" in page.text:
                return
            action = re.search(r'action="([^"]+)"', page.text)
            assert action is not None, page.text
            hidden = re.findall(r'<input[^>]*name="(\w+)"[^>]*value="([^"]*)"', page.text)
            form = dict(hidden) | {"login": account, "password": "any", "confirm": "yes"}
            page = http.post(str(page.url.join(action[1])), data=form)
        raise AssertionError(page.text)


def _to_issuer(site: Site) -> httpx.Client:
    trust = ssl.create_default_context(cafile=str(site.root / "issuer.pem"))
    return httpx.Client(base_url=site.issuer, verify=trust, follow_redirects=True, timeout=30)


def _token_request(site: Site, grant: dict[str, str]) -> httpx.Response:
    with _to_issuer(site) as http:
        return http.post("/token", data=grant | {"client_id": "sealsum-cli"})


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def _listening(process: subprocess.Popen[str], log: Path) -> str:
    for _ in range(600):
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "listening":
                return str(event["url"])
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError("the aggregator did not come up")


def _issuer_certificate(root: Path) -> None:
    """Self-signed, for localhost, with a kind of key that browsers know."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (root / "issuer.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (root / "issuer.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
