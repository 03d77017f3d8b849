"""The doctor names the cause of each broken set-up, over real sockets, and finds nothing in a sound one."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privacy.keystore import load_identity
from silo_agent.doctor import machine, server
from silo_agent.doctor.examination import examine
from silo_agent.doctor.finding import Finding, Report
from silo_agent.doctor.route import look_at_way, way_to
from silo_agent.doctor_command import doctor
from silo_agent.egress import Egress
from silo_agent.settings import read_settings
from silo_agent.worker_settings import WorkerSettings
from tests.one_answer import answering
from tests.silo_yaml import registered
from tests.unit.silo_agent import loopback
from tests.unit.silo_agent.loopback import Loopback, patients


@pytest.fixture(autouse=True)
def _no_proxy_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(server, "SIZES", (64 << 10, 1 << 20))


@dataclass
class Site:
    """A hospital with a sound set-up, to be broken."""

    servers: Loopback
    root: Path

    def config(self, **changes: Any) -> Path:
        return self.servers.silo_files(self.root, patients(80), **{"worker": {}, **changes})

    def state(self) -> Path:
        return self.root / "state"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    servers = Loopback(tmp_path)
    yield Site(servers, tmp_path)
    servers.close()


def fault(report: Report, check: str, verdict: str = "fault") -> Finding:
    found = [one for one in report.findings if one.check == check and one.verdict == verdict]
    assert found, [(one.check, one.verdict, one.got) for one in report.findings]
    assert found[0].remedy
    assert found[0].expected
    return found[0]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_sound_set_up_has_no_fault_and_green_lines(site: Site) -> None:
    config = site.config()
    result = CliRunner().invoke(doctor, ["--config", str(config), "--idle", "0.1", "--json"])
    said = json.loads(result.stdout)
    verdicts = {one["check"]: one["verdict"] for one in said["findings"]}
    assert result.exit_code == said["exit_code"] == 0, said
    assert {verdicts[check] for check in ("settings", "keys", "certificate", "threat_model", "mtls")} == {
        "ok"
    }
    assert {verdicts[check] for check in ("clock", "charter", "policies", "idle:aggregator")} == {"ok"}
    assert {verdicts[f"{check}:server-1"] for check in ("dns", "connect", "proxy", "tls", "payload")} == {
        "ok"
    }
    assert "fault" not in verdicts.values()
    shown = CliRunner().invoke(doctor, ["--config", str(config), "--idle", "0"])
    assert "0 fault(s)" in shown.stdout
    assert not (site.state() / "charter.json.tmp").exists()


def test_the_doctor_changes_nothing_and_joins_nothing(site: Site) -> None:
    config = site.config()
    before = {path: path.read_bytes() for path in site.state().rglob("*") if path.is_file()}
    examine(config, 0)
    assert {path: path.read_bytes() for path in site.state().rglob("*") if path.is_file()} == before
    assert site.servers.polls == 0
    assert site.servers.readiness == []


def test_settings_that_cannot_be_read(site: Site) -> None:
    report = examine(site.config(proxy="http://user:canary@proxy:3128"), 0)
    found = fault(report, "settings")
    assert report.exit_code == 78
    assert "proxy" in found.got
    assert "canary" not in json.dumps([one.as_dict() for one in report.findings])


def test_a_name_that_does_not_resolve(site: Site) -> None:
    report = examine(site.config(aggregator_url="https://aggregator.invalid"), 0)
    assert "aggregator.invalid" in fault(report, "dns:aggregator").looked_at
    assert report.exit_code == 2


def test_a_server_that_is_not_there(site: Site) -> None:
    report = examine(site.config(aggregator_url=f"https://127.0.0.1:{closed_port()}"), 0)
    assert "Connection refused" in fault(report, "connect:aggregator").got


def test_ipv6_that_resolves_and_leads_nowhere(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, connect = socket.getaddrinfo, socket.create_connection

    def both(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        dead = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", port, 0, 0))
        return [dead, *resolve(host, port, *rest, **named)]

    def unreachable(address: tuple[str, int], timeout: float) -> socket.socket:
        if ":" in address[0]:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        return connect(address, timeout)

    monkeypatch.setattr("silo_agent.doctor.route.socket.getaddrinfo", both)
    monkeypatch.setattr("silo_agent.doctor.route.socket.create_connection", unreachable)
    report = Report()
    connection = look_at_way("aggregator", site.servers.url, way_to("127.0.0.1", Egress()), report)
    assert connection is not None
    connection.close()
    assert fault(report, "connect:aggregator", "warning").got == "IPv6: Network is unreachable"


@pytest.mark.parametrize(
    ("answer", "status", "remedy"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407", "proxy_credentials"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403", "allow CONNECT"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502", "cannot reach the server"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP", "an HTTP proxy listens there"),
    ],
)
def test_a_proxy_that_does_not_let_us_through(site: Site, answer: bytes, status: str, remedy: str) -> None:
    with answering(answer) as port:
        report = examine(site.config(proxy=f"http://127.0.0.1:{port}"), 0)
    found = fault(report, "proxy:aggregator")
    assert status in found.got
    assert remedy in found.remedy
    assert "proxy of silo.yaml" in found.looked_at


def test_the_proxy_rule_that_applies_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    assert way_to("a.example", Egress()).rule == "no proxy is configured"
    monkeypatch.setenv("HTTPS_PROXY", "http://ada:canary@proxy:3128")
    way = way_to("a.example", Egress())
    assert (way.rule, way.proxy) == ("HTTPS_PROXY of the environment", "http://proxy:3128")
    assert way.authorization is not None
    assert "canary" not in repr(way)
    monkeypatch.setenv("NO_PROXY", "a.example")
    assert way_to("a.example", Egress("http://other:1")).rule == "NO_PROXY names a.example: no proxy"
    assert way_to("b.example", Egress("http://other:1")).rule == "proxy of silo.yaml"


def test_a_certificate_of_another_issuer_is_named_as_inspection(site: Site, tmp_path: Path) -> None:
    stranger = Loopback(tmp_path / "stranger", name="inspector")
    report = examine(site.config(aggregator_url=stranger.url), 0)
    stranger.close()
    found = fault(report, "tls:aggregator")
    assert "issued by inspector CA" in found.got
    assert "exempted from inspection" in found.remedy
    assert "testfed" in found.expected


def test_inspection_by_the_sites_own_ca_is_named_too(site: Site, tmp_path: Path) -> None:
    stranger = Loopback(tmp_path / "stranger", name="inspector")
    bundle = tmp_path / "stranger" / "aggregator" / "ca.pem"
    report = examine(site.config(aggregator_url=stranger.url, ca_bundle=str(bundle)), 0)
    stranger.close()
    assert "which ca_bundle knows" in fault(report, "tls:aggregator").got


def test_a_certificate_for_another_host(site: Site) -> None:
    context = load_identity(site.root / "aggregator").server_context
    with answering(b"", "127.0.0.2", context) as port:
        report = examine(site.config(aggregator_url=f"https://127.0.0.2:{port}"), 0)
    found = fault(report, "tls:aggregator")
    assert found.expected == "one for 127.0.0.2"
    assert "127.0.0.1" in found.got


def test_a_clock_that_is_wrong(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback._Handler, "date_time_string", lambda _self: "Thu, 01 Jan 2026 00:00:00 GMT")
    report = examine(site.config(), 0)
    assert "s ahead of the server" in fault(report, "clock").got
    assert report.exit_code == 78


def test_a_silo_that_the_charter_does_not_know(site: Site) -> None:
    federation = site.servers.federation
    config = site.config()
    others = [one for one in federation.charter.members if one.id != "silo-1"]
    federation.endorsed_charter = federation.endorse(federation.next_charter(members=others))
    assert "silo-1" in fault(examine(config, 0), "charter").got


def test_a_charter_that_the_pinned_officers_did_not_endorse(site: Site, tmp_path: Path) -> None:
    config = site.config()
    federation = site.servers.federation
    federation.endorsed_charter = federation.endorse(federation.charter, by=("officer-1",))
    assert fault(examine(config, 0), "charter").exit_code == 2


def test_threat_models_that_do_not_fit(site: Site) -> None:
    report = examine(site.config(threat_model="demo-pairwise"), 0)
    assert "federation additive, silo pairwise" in fault(report, "policies").got
    assert report.exit_code == 3


def test_keys_that_others_can_read(site: Site) -> None:
    config = site.config()
    (site.state() / "identity.key").chmod(0o644)
    report = examine(config, 0)
    found = fault(report, "keys")
    assert "expected mode 0600 or tighter, got 0644" in found.got
    assert found.remedy.startswith("run: chmod 600")
    assert report.exit_code == 78


def test_a_state_directory_that_others_can_look_into_or_that_is_full(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = site.config()
    site.state().chmod(0o750)
    assert "chmod 700" in fault(examine(config, 0), "state_dir").remedy
    site.state().chmod(0o700)
    monkeypatch.setattr(machine, "free_bytes", lambda _path: 300 << 20)
    assert "300 MiB" in fault(examine(config, 0), "state_dir", "warning").got
    monkeypatch.setattr("policies.health.checks.free_bytes", lambda _path: 1 << 20)
    assert "got 1 MiB" in fault(examine(config, 0), "state_dir").got


def test_data_that_are_not_there_or_have_another_patient_column(site: Site) -> None:
    gone = examine(site.config(datasets={"cardio": registered(path="gone.csv")}), 0)
    assert "cannot be read" in fault(gone, "dataset:cardio").got
    config = site.root / "silo.yaml"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"datasets": {"cardio": registered(patient_id="mrn")}})
    )
    other = examine(config, 0)
    assert "4 columns, not that one" in fault(other, "dataset:cardio").got


def test_a_certificate_near_its_end_over_or_not_begun(site: Site) -> None:
    site.config()
    identity = load_identity(site.state())
    now = datetime.now(UTC)
    for at, verdict, words in (
        (now, "ok", "until"),
        (now + timedelta(hours=22), "warning", "near its end"),
        (now + timedelta(days=2), "fault", "it has ended"),
        (now - timedelta(days=2), "fault", "it has not begun"),
    ):
        report = Report()
        machine._certificate(identity, report, at)
        [found] = report.findings
        assert (found.verdict, words in found.got) == (verdict, True)


def test_a_gpu_that_torch_cannot_use(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    report = Report()
    machine._gpu(report, device)
    [found] = report.findings
    assert (found.verdict, "CUDA" in found.remedy) == ("warning", True)


def test_a_proxy_that_caps_bodies(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(handler: Any) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler._answer(413, b"<html>Request Entity Too Large</html>")

    monkeypatch.setattr(loopback._Handler, "do_PUT", too_large)
    report = examine(site.config(), 0)
    found = fault(report, "payload:server-0")
    assert "64 KiB" in found.got
    assert "client_max_body_size" in found.remedy


def test_connections_that_are_cut_when_idle(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[[Any], None] = loopback._Handler.setup

    def impatient(handler: Any) -> None:
        original(handler)
        handler.connection.settimeout(0.2)

    monkeypatch.setattr(loopback._Handler, "setup", impatient)
    report = examine(site.config(), 0.6)
    assert "it was cut" in fault(report, "idle:aggregator", "warning").got


def test_a_worker_that_keeps_its_network_is_a_fault_or_where_the_settings_bear_it_a_warning(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report()
    settings = read_settings(site.config())
    machine.look_at_machine(settings, report, datetime.now(UTC))
    assert [one.got for one in report.findings if one.check == "worker"] == ["neither network nor keys"]
    monkeypatch.setattr(machine, "look_at_confinement", lambda *_: "Operation not permitted (unshare)")
    for worker, verdict, got in (
        ({}, "fault", "no namespaces: Operation not permitted (unshare)"),
        ({"network": "best_effort"}, "warning", "it keeps its network: Operation not permitted (unshare)"),
        ({"process": False}, "warning", "none: training runs in the agent's own process"),
    ):
        report = Report()
        wanted = settings.model_copy(update={"worker": WorkerSettings.model_validate(worker)})
        machine.look_at_machine(wanted, report, datetime.now(UTC))
        found = fault(report, "worker", verdict)
        assert found.got == got
        assert found.remedy
