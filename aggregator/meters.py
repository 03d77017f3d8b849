"""What a server measures: rounds and how long they took, jobs, who is here, answers by status.

Rounds and refusals are counted from the audit log's entries as they are committed, so that metrics and the
evidence say the same; after a restart they begin at zero, as counters do.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from prometheus_client import Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aggregator.turnout import OUTCOMES_OF_SILOS
from policies.health.meters import Meters
from privacy.transparency.leaf import Record

_ROUND_S: Final = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
_OUTCOMES: Final = {"model_published": "opened", "round_aborted": "aborted"}
_ROUNDS_REMEMBERED: Final = 1024


class BlobMeters:
    """Of the store of parts and models."""

    def __init__(self, meters: Meters) -> None:
        self.parts = meters.gauge("sealsum_server_parts", "Parts that silos sent and that are held now.")
        self.parts_bytes = meters.gauge("sealsum_server_parts_bytes", "Bytes of these parts.")
        self._collected = meters.counter("sealsum_server_blobs_collected", "Blobs without a row, deleted.")
        self._collected_bytes = meters.counter(
            "sealsum_server_blobs_collected_bytes", "Bytes of blobs without a row, deleted."
        )
        self._missing = meters.gauge(
            "sealsum_server_blobs_missing", "Models that the database knows and the store does not have."
        )

    def collected(self, blobs: int, size: int, missing: int) -> None:
        """One pass of the collector is over."""
        self._collected.inc(blobs)
        self._collected_bytes.inc(size)
        self._missing.set(missing)


class ServerMeters(Meters):
    """One server's."""

    def __init__(self, component: Literal["aggregator", "share_server"], state_dir: Path) -> None:
        super().__init__(component, state_dir)
        self.rounds = self.counter("sealsum_server_rounds", "Rounds that ended here, by outcome.", "outcome")
        for outcome in _OUTCOMES.values():
            self.rounds.labels(outcome)
        self.round_seconds = Histogram(
            "sealsum_server_round_seconds",
            "From a round's offer to its end.",
            buckets=_ROUND_S,
            registry=self.registry,
        )
        self.answers = self.counter("sealsum_server_responses", "Answers by status class.", "status")
        for status in ("2xx", "3xx", "4xx", "5xx"):
            self.answers.labels(status)
        self.present = self.gauge("sealsum_server_silos_present", "Silos that are here now (aggregator).")
        self.enrolled = self.gauge("sealsum_server_silos_enrolled", "Silos of the charter in force.")
        self.open_jobs = self.gauge("sealsum_server_jobs_open", "Jobs queued or running (aggregator).")
        self.turnouts = self.gauge(
            "sealsum_server_turnouts",
            "Silos times rounds of all jobs that are kept, by what came of it (aggregator).",
            "outcome",
        )
        for outcome in OUTCOMES_OF_SILOS:
            self.turnouts.labels(outcome)
        self.blobs = BlobMeters(self)
        self._begun: dict[str, datetime] = {}

    def logged(self, records: Sequence[Record]) -> None:
        """The audit log has grown by these."""
        super().logged(records)
        for record in records:
            context = str(record.body.get("context"))
            if record.kind in ("round_offered", "round_admitted"):
                self._remember(context, record)
            elif record.kind in _OUTCOMES:
                self.rounds.labels(_OUTCOMES[record.kind]).inc()
                begun = self._begun.pop(context, None)
                if begun is not None:
                    self.round_seconds.observe((datetime.fromisoformat(record.at) - begun).total_seconds())
            elif record.kind == "charter_in_force":
                self.charter_epoch.set(record.body["epoch"])

    def _remember(self, context: str, record: Record) -> None:
        """Remember when; rounds that never end here must not fill the memory."""
        if len(self._begun) >= _ROUNDS_REMEMBERED:
            self._begun.pop(next(iter(self._begun)))
        self._begun[context] = datetime.fromisoformat(record.at)


class Counting:
    """ASGI middleware outside everything else: counts answers by the class of their status."""

    def __init__(self, app: ASGIApp, meters: ServerMeters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, and look at the first message of its answer."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meters.answers.labels(f"{message['status'] // 100}xx").inc()
            await send(message)

        await self._app(scope, receive, counted)
