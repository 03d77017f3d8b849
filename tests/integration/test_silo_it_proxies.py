"""Out through real proxies: squid that asks for a password, mitmproxy that opens TLS."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from privacy.errors import SignatureRejected
from privacy.key_reference import parse_reference
from privacy.keystore import load_identity
from privacy.secret_files import write_secret
from silo_agent.charter_pin import ask_for_charter
from silo_agent.doctor.examination import examine
from silo_agent.egress import egress_of
from silo_agent.problems import Unreachable
from silo_agent.settings import SiloSettings, read_settings
from silo_agent.transport import FederationClient
from tests.one_answer import answering
from tests.unit.silo_agent.loopback import Loopback, patients

pytestmark = pytest.mark.e2e
PASSWORD = "canary-71c2"
_HELPER = Path("/usr/lib/squid/basic_ncsa_auth")


@pytest.fixture(autouse=True)
def _no_proxy_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def process(command: list[str], port: int) -> Iterator[None]:
    """A proxy, once it listens."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            assert running.poll() is None, f"{command[0]} ended with {running.returncode}"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        running.terminate()
        try:
            running.wait(15)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@contextmanager
def squid() -> Iterator[str]:
    """A squid that lets one user CONNECT anywhere; its URL. It gives up root, so all may read its files."""
    binary = shutil.which("squid") or "/usr/sbin/squid"
    assert Path(binary).exists(), "install squid: apt-get install squid"
    hashed = ["openssl", "passwd", "-apr1", PASSWORD]
    digest = subprocess.run(hashed, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="squid-") as made:
        directory, port = Path(made), free_port()
        directory.chmod(0o777)
        (directory / "users").write_text(f"ada:{digest}\n")
        (directory / "users").chmod(0o644)
        config = directory / "squid.conf"
        config.write_text(
            f"http_port 127.0.0.1:{port}\n"
            f"auth_param basic program {_HELPER} {directory}/users\n"
            "acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n"
            f"cache deny all\naccess_log none\ncache_log {directory}/cache.log\npid_filename none\n"
            f"coredump_dir {directory}\nconnect_timeout 2 seconds\nshutdown_lifetime 0 seconds\n"
            "pinger_enable off\n"
        )
        with process([binary, "-N", "-f", str(config)], port):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def mitmproxy(directory: Path) -> Iterator[tuple[str, Path]]:
    """A mitmproxy that opens TLS; its URL, and its CA."""
    binary = shutil.which("mitmdump")
    assert binary is not None, "install mitmproxy: apt-get install mitmproxy"
    port, confdir = free_port(), directory / "mitm"
    command = [binary, "-q", "--listen-host", "127.0.0.1", "-p", str(port), "--set", f"confdir={confdir}"]
    with process([*command, "--ssl-insecure"], port):
        yield f"http://127.0.0.1:{port}", confdir / "mitmproxy-ca-cert.pem"


def client(settings: SiloSettings) -> FederationClient:
    identity = load_identity(settings.state_dir)
    return FederationClient(identity, settings.aggregator_url, proxy=egress_of(settings), patience_s=0.0)


def test_squid_with_a_password_by_reference_lets_mutual_tls_through(
    servers: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_secret(tmp_path / "proxy", f"ada:{PASSWORD}\n".encode())
    with squid() as url:
        config = servers.silo_files(
            tmp_path, patients(10), proxy=url, proxy_credentials=f"file:{tmp_path}/proxy"
        )
        settings = read_settings(config)
        with client(settings) as through:
            assert ask_for_charter(through)
        report = examine(config, 0)
        assert report.exit_code == 0, [one for one in report.findings if one.verdict == "fault"]
        proxied = [one for one in report.findings if one.check.startswith("proxy:")]
        assert {(one.verdict, one.got) for one in proxied} == {("ok", "200")}
        # Nobody's, or the wrong password: named, and the password shows nowhere.
        monkeypatch.setenv("SEALSUM_WRONG", "ada:wrong")
        for credentials in (None, parse_reference("env:SEALSUM_WRONG")):
            altered = settings.model_copy(update={"proxy_credentials": credentials})
            with client(altered) as refused, pytest.raises(Unreachable, match=r"407.*proxy_credentials"):
                ask_for_charter(refused)
        # A server that is not there: the proxy says so.
        gone = settings.model_copy(update={"aggregator_url": f"https://127.0.0.1:{free_port()}"})
        with client(gone) as refused, pytest.raises(Unreachable, match=r"50[23]"):
            ask_for_charter(refused)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        direct = settings.model_copy(update={"proxy_credentials": None})
        with client(direct) as around:
            assert ask_for_charter(around)
    assert PASSWORD not in repr(egress_of(settings))
    assert PASSWORD not in str([one.as_dict() for one in report.findings])


def test_a_proxy_that_opens_tls_is_refused_and_named_and_believing_its_ca_does_not_help(
    servers: Loopback, tmp_path: Path
) -> None:
    with mitmproxy(tmp_path) as (url, ca):
        config = servers.silo_files(tmp_path, patients(10), proxy=url)
        settings = read_settings(config)
        with client(settings) as unknown, pytest.raises(Unreachable, match="TLS is opened on the way"):
            ask_for_charter(unknown)
        report = examine(config, 0)
        [found] = [one for one in report.findings if one.verdict == "fault"]
        assert found.check == "tls:aggregator"
        assert "issued by mitmproxy" in found.got
        # Its CA in ca_bundle: the handshake succeeds, and the server never sees our certificate.
        servers.wants_certificates = True
        believing = settings.model_copy(update={"ca_bundle": ca})
        with (
            client(believing) as known,
            pytest.raises(SignatureRejected, match="issued by mitmproxy") as caught,
        ):
            ask_for_charter(known)
        assert "exempted from TLS inspection" in str(caught.value)


def test_a_server_under_another_name_is_refused(servers: Loopback, tmp_path: Path) -> None:
    """The certificate is of the federation's CA, and for another host than the one that is dialled."""
    context = load_identity(tmp_path / "aggregator").server_context
    settings = read_settings(servers.silo_files(tmp_path, patients(10)))
    with answering(b"", "127.0.0.2", context) as port:
        renamed = settings.model_copy(update={"aggregator_url": f"https://127.0.0.2:{port}"})
        with client(renamed) as refused, pytest.raises(Unreachable, match="for another host"):
            ask_for_charter(refused)
