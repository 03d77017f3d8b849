"""What every process measures: its build, readiness, certificate, disk, log and audit sinks.

A registry of its own and no global one, so that tests and several servers in one process do not mix.
Names are promises: ``docs/metrics.md`` lists them, alerts and dashboards are built on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, disable_created_metrics

from policies.health.checks import Seen, free_bytes, read_certificate
from privacy.errors import ConfigurationError
from privacy.transparency.leaf import Record

Component = Literal["silo", "aggregator", "share_server"]


class Meters:
    """One process's."""

    def __init__(self, component: Component, state_dir: Path) -> None:
        """Measure the disk, and the certificates, in ``state_dir``."""
        # A second series for each counter, which nobody here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library types it so
        self.registry = CollectorRegistry()
        self._state_dir = state_dir
        ProcessCollector(registry=self.registry)
        build = self.gauge("sealsum_build_info", "1; the labels say what runs.", "version", "component")
        build.labels(metadata.version("sealsum"), component).set(1)
        self._ready = self.gauge("sealsum_ready", "1 where every check of /readyz holds.")
        self._checks = self.gauge("sealsum_check_ok", "1 where this check of /readyz holds.", "check")
        self.charter_epoch = self.gauge("sealsum_charter_epoch", "Epoch of the charter in force.")
        self.renewals = self.counter(
            "sealsum_certificate_renewals", "Attempts to renew the own certificate.", "outcome"
        )
        self.reloads = self.counter(
            "sealsum_reloads", "Reloads of certificates and settings (SIGHUP, renewal).", "outcome"
        )
        for counter in (self.renewals, self.reloads):
            for outcome in ("done", "failed"):
                counter.labels(outcome)
        self._log_entries = self.counter("sealsum_log_entries", "Entries of the own audit log.", "kind")
        self._sink_up = self.gauge("sealsum_audit_sink_up", "1 where the sink takes entries.", "sink")
        self._sink_lag = self.gauge(
            "sealsum_audit_sink_lag_entries", "Entries of the log that the sink has yet to take.", "sink"
        )
        self._free = self.gauge("sealsum_state_free_bytes", "Room left for the state directory.")
        self._begin = self.gauge(
            "sealsum_certificate_not_before_timestamp_seconds", "Begin of the own certificate."
        )
        self._end = self.gauge(
            "sealsum_certificate_not_after_timestamp_seconds", "End of the own certificate."
        )
        self._ca_end = self.gauge("sealsum_ca_not_after_timestamp_seconds", "End of the CA's certificate.")

    def gauge(self, name: str, words: str, *labels: str) -> Gauge:
        """A gauge in this registry."""
        return Gauge(name, words, labels, registry=self.registry)

    def counter(self, name: str, words: str, *labels: str) -> Counter:
        """A counter in this registry; its series is called ``<name>_total``."""
        return Counter(name, words, labels, registry=self.registry)

    def saw(self, seen: Sequence[Seen]) -> None:
        """Checks were looked at."""
        self._ready.set(all(one.ok for one in seen))
        for one in seen:
            self._checks.labels(one.name).set(one.ok)

    def logged(self, records: Sequence[Record]) -> None:
        """The audit log has grown by these."""
        for record in records:
            self._log_entries.labels(record.kind).inc()

    def sinks(self, states: Mapping[str, tuple[bool, int]]) -> None:
        """How each audit sink is: whether it takes entries, and how many it lacks."""
        for name, (up, lag) in states.items():
            self._sink_up.labels(name).set(up)
            self._sink_lag.labels(name).set(lag)

    def measure(self) -> None:
        """Read disk and certificates anew; what cannot be read is not a number."""
        self._free.set(_or_nan(lambda: free_bytes(self._state_dir)))
        own, ca = self._state_dir / "identity.pem", self._state_dir / "ca.pem"
        self._begin.set(_or_nan(lambda: _seconds(read_certificate(own).not_valid_before_utc)))
        self._end.set(_or_nan(lambda: _seconds(read_certificate(own).not_valid_after_utc)))
        self._ca_end.set(_or_nan(lambda: _seconds(read_certificate(ca).not_valid_after_utc)))


Refresh = Callable[[], None]
"""Brings a process's own gauges up to date before they are read."""


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


def _or_nan(read: Callable[[], float]) -> float:
    try:
        return read()
    except (OSError, ConfigurationError):
        return math.nan
