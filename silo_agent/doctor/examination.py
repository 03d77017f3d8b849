"""The doctor's order: the machine first, then the way to each server, then what the servers say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from policies.loader import LoadedPolicy
from privacy.errors import ConfigurationError
from privacy.keystore import Identity
from privacy.roster import Charter
from silo_agent.doctor.finding import LOCAL, Report
from silo_agent.doctor.machine import look_at_machine
from silo_agent.doctor.route import look_at_way, way_to
from silo_agent.doctor.server import look_at_charter, look_at_idle, look_at_payload
from silo_agent.doctor.tls import look_at_tls
from silo_agent.egress import Egress, egress_of
from silo_agent.settings import SiloSettings, read_settings
from silo_agent.transport import FederationClient

AGGREGATOR = "aggregator"
_PATIENCE_S = 2.0


def examine(config: Path, idle_s: float) -> Report:
    """Look at everything; nothing is changed, and no round is joined."""
    report = Report()
    expected = "settings that can be read"
    try:
        settings = read_settings(config)
        egress = egress_of(settings)
    except ConfigurationError as error:
        told = "correct what is named; docs/operating-a-silo.md has a whole file"
        report.fault(
            "settings",
            str(config),
            expected,
            " ".join(str(error).removeprefix(f"{config}: ").split()),
            told,
            LOCAL,
        )
        return report
    report.ok("settings", str(config), expected, f"{len(settings.datasets)} dataset(s)")
    identity, own = look_at_machine(settings, report, datetime.now(UTC))
    if identity is None:
        report.skip("servers", settings.aggregator_url, "without keys no server answers")
        return report
    _Servers(settings, identity, own, egress, idle_s, report).look()
    return report


@dataclass(frozen=True)
class _Servers:
    """One look at all of them."""

    settings: SiloSettings
    identity: Identity
    own: LoadedPolicy | None
    egress: Egress
    idle_s: float
    report: Report

    def look(self) -> None:
        charter = self._aggregator()
        if charter is None:
            self.report.skip("share servers", "those of the charter", "no charter was seen that holds")
            return
        for member in charter.with_role("share_server"):
            if self._reached(member.id, member.url):
                with self._client(member.url) as client:
                    look_at_payload(client, member.id, self.report)

    def _aggregator(self) -> Charter | None:
        url = self.settings.aggregator_url
        if not self._reached(AGGREGATOR, url):
            self.report.skip("mtls", url, "it is not reached, or not what it should be")
            return None
        with self._client(url) as client:
            charter = look_at_charter(client, self.identity, self.egress, self.own, self.report)
        if charter is not None:
            self._idle(url)
        return charter

    def _reached(self, name: str, url: str) -> bool:
        """Whether the server is there, and shows a certificate that the agent will believe."""
        host = urlsplit(url).hostname or ""
        way = way_to(host, self.egress)
        connection = look_at_way(name, url, way, self.report)
        if connection is None:
            # A proxy dialled by TLS: the connection itself will tell.
            return way.proxy is not None and way.proxy.startswith("https:")
        with connection:
            return look_at_tls(
                name, host, connection, self.identity, self.egress, self.report, datetime.now(UTC)
            )

    def _idle(self, url: str) -> None:
        host = urlsplit(url).hostname or ""
        if self.idle_s <= 0:
            self.report.skip(f"idle:{AGGREGATOR}", url, "not asked for (--idle 0)")
            return
        connection = look_at_way(AGGREGATOR, url, way_to(host, self.egress), Report())
        if connection is not None:
            look_at_idle(connection, host, AGGREGATOR, self.idle_s, self.identity, self.report)

    def _client(self, url: str) -> FederationClient:
        return FederationClient(self.identity, url, proxy=self.egress, patience_s=_PATIENCE_S)
