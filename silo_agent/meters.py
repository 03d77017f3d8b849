"""What a silo's agent measures, read off the events of its own log: rounds, refusals, training, ε, contact.

The agent's code says each thing once, in its log; this table turns events into numbers. Nothing here is
computed from records: ε and counts of rounds are what ``sealsum silo budget`` shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import Histogram

from policies.health.meters import Meters

_TRAINING_S = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)


class SiloMeters(Meters):
    """One agent's."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__("silo", state_dir)
        self.rounds = self.counter(
            "sealsum_silo_rounds", "Rounds that ended, by what came of them.", "outcome"
        )
        for outcome in ("opened", "aborted", "refused"):
            self.rounds.labels(outcome)
        self.refusals = self.counter("sealsum_silo_refusals", "Rounds this silo refused, by rule.", "rule")
        self.sent = self.counter("sealsum_silo_sent_bytes", "Bytes of request bodies sent in rounds.")
        self.unreachable = self.counter("sealsum_silo_unreachable", "Times that a server did not answer.")
        self.training = Histogram(
            "sealsum_silo_training_seconds",
            "Time to train one round.",
            buckets=_TRAINING_S,
            registry=self.registry,
        )
        self.last_contact = self.gauge(
            "sealsum_silo_last_contact_timestamp_seconds", "When a server last answered; 0 before the first."
        )
        self.clock_offset = self.gauge(
            "sealsum_silo_clock_offset_seconds",
            "How far the own clock is ahead of the servers', to a second.",
        )
        self.epsilon_spent = self.gauge(
            "sealsum_silo_epsilon_spent", "ε reserved over the dataset's life.", "dataset"
        )
        self.epsilon_limit = self.gauge("sealsum_silo_epsilon_limit", "Its cap for life.", "dataset")

    def account(self, statement: Mapping[str, Any]) -> None:
        """Take ε from a statement, as ``sealsum silo budget --json`` prints it."""
        for name, one in statement["datasets"].items():
            self.epsilon_spent.labels(name).set(one["spent"]["epsilon"])
            self.epsilon_limit.labels(name).set(one["caps"]["epsilon"]["lifetime"])

    def _round_ended(self, event: Mapping[str, Any]) -> None:
        self.rounds.labels(event["outcome"]).inc()
        self.sent.inc(event["sent_bytes"])

    def _refused(self, event: Mapping[str, Any]) -> None:
        self.rounds.labels("refused").inc()
        self.refusals.labels(event["rule"]).inc()

    def _trained(self, event: Mapping[str, Any]) -> None:
        self.training.observe(event["train_ms"] / 1000)

    def _reserved(self, event: Mapping[str, Any]) -> None:
        self.epsilon_spent.labels(event["dataset"]).set(event["epsilon_lifetime"])

    def _unreachable(self, _event: Mapping[str, Any]) -> None:
        self.unreachable.inc()

    def _charter(self, event: Mapping[str, Any]) -> None:
        self.charter_epoch.set(event["epoch"])

    def by_event(self) -> dict[str, Callable[[Mapping[str, Any]], None]]:
        """Which event of the agent's log counts as what."""
        return {
            "round_result": self._round_ended,
            "refused": self._refused,
            "trained": self._trained,
            "reserved": self._reserved,
            "unreachable": self._unreachable,
            "upload_failed": self._unreachable,
            "charter": self._charter,
        }


class EventHandler(logging.Handler):
    """Hands the agent's events to its meters."""

    def __init__(self, meters: SiloMeters) -> None:
        super().__init__(logging.INFO)
        self._by_event = meters.by_event()

    def emit(self, record: logging.LogRecord) -> None:
        """Count one event; others pass."""
        count = self._by_event.get(record.getMessage())
        if count is not None:
            count(vars(record))
