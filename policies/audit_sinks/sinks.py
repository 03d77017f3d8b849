"""All sinks of one party, and the gate before what must not happen unrecorded.

The gate asks for evidence that at least one sink has taken the log as it stood; a threat model may say that
it need not (``evidence.fail_closed: false``, synthetic data only).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies.audit_sinks.delivery import Delivery
from policies.audit_sinks.entry import Sink
from policies.audit_sinks.feed import Feed
from policies.audit_sinks.jsonl import JsonlSink
from policies.audit_sinks.position import Position
from policies.audit_sinks.settings import JsonlSinkSettings, SinkSettings
from policies.audit_sinks.syslog import SyslogSink
from policies.findings import Finding, PolicyRefusal
from policies.loader import LoadedPolicy
from privacy.errors import ConfigurationError

NEWS_MAX: Final = 64
"""Failures and recoveries that wait to be logged; older ones go, and stay in the process's own log."""


@dataclass(frozen=True)
class Taken:
    """Evidence that what a log held is at a sink too, or that no threat model asks for it."""

    size: int
    """Entries of the log at the time."""


@dataclass(frozen=True)
class News:
    """A sink that failed or recovered, to be logged by the log's own thread."""

    kind: str
    sink: str
    reason: str

    @property
    def body(self) -> dict[str, str]:
        """The entry's fields."""
        return {"sink": self.sink} | ({"reason": self.reason} if self.reason else {})


class AuditSinks:
    """One party's. Thread-safe."""

    def __init__(self, sinks: Sequence[SinkSettings], state_dir: Path, feed: Feed, wait_s: float) -> None:
        """Read how far each has come; nothing is opened or connected to before ``start``.

        Raises:
            ConfigurationError: a position does not read back.
        """
        self._feed = feed
        self._wait_s = wait_s
        self._news: deque[News] = deque(maxlen=NEWS_MAX)
        directory = state_dir / "sinks"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._deliveries = tuple(
            Delivery(
                sink.name,
                _opened(sink),
                feed,
                Position(directory / f"{sink.name}.json", feed.origin, sink.place, feed.size),
                self._told,
            )
            for sink in sinks
        )

    def start(self) -> None:
        """Begin to deliver; more than once does nothing more."""
        for delivery in self._deliveries:
            delivery.start()

    def close(self) -> None:
        """Deliver what can be at once, and end."""
        for delivery in self._deliveries:
            delivery.close()

    def states(self) -> dict[str, tuple[bool, int]]:
        """Each sink by name: whether its last try went well, and how many entries it lacks."""
        size = self._feed.size
        return {one.name: (not one.failing, max(0, size - one.taken)) for one in self._deliveries}

    def news(self) -> list[News]:
        """What is to be logged of the sinks themselves; each is given once."""
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def put_back(self, news: Sequence[News]) -> None:
        """These were not logged after all."""
        self._news.extendleft(reversed(news))

    def assert_enough(self, policies: Sequence[LoadedPolicy]) -> None:
        """As many sinks as every threat model asks for.

        Raises:
            ConfigurationError: fewer.
        """
        for policy in policies:
            needed = policy.model.spec.evidence.sinks_min
            if len(self._deliveries) < needed:
                raise ConfigurationError(
                    f"audit_sinks: expected at least {needed} (evidence.sinks_min of threat model "
                    f"{policy.model.metadata.name}), got {len(self._deliveries)}; "
                    "add one, such as a syslog receiver"
                )

    def gate(self, policies: Sequence[LoadedPolicy]) -> Taken:
        """Wait until a sink has taken the log as it stands. Judged in this order:

        (1) there are as many sinks as each threat model asks for; (2) at least one takes all there is in
        time, unless every threat model lets it be.

        Raises:
            PolicyRefusal: ``evidence.too_few_sinks`` (1), ``evidence.not_taken`` (2).
        """
        size = self._feed.size
        if self._passes(policies, size):
            return Taken(size)
        until = time.monotonic() + self._wait_s
        with self._feed.changed:
            while not self._taken(size):
                left = until - time.monotonic()
                if left <= 0:
                    raise self._not_taken(size)
                self._feed.changed.wait(left)
        return Taken(size)

    async def gate_beside(self, policies: Sequence[LoadedPolicy]) -> Taken:
        """``gate`` for an event loop: it waits in a thread, if it has to."""
        size = self._feed.size
        if self._passes(policies, size):
            return Taken(size)
        return await asyncio.to_thread(self.gate, policies)

    def _passes(self, policies: Sequence[LoadedPolicy], size: int) -> bool:
        # (1)
        try:
            self.assert_enough(policies)
        except ConfigurationError as error:
            finding = Finding(
                "evidence.too_few_sinks",
                "The threat model asks for more places that a party's log is copied to than this party has.",
                f"evidence.sinks_min: {max(policy.model.spec.evidence.sinks_min for policy in policies)}",
                str(len(self._deliveries)),
                "add to audit_sinks in this party's settings, and restart it",
            )
            raise PolicyRefusal("log", [finding]) from error
        # (2)
        self.start()
        closed = any(policy.model.spec.evidence.fail_closed for policy in policies)
        return not closed or self._taken(size)

    def _taken(self, size: int) -> bool:
        return any(delivery.taken >= size for delivery in self._deliveries)

    def _not_taken(self, size: int) -> PolicyRefusal:
        behind = size - max((delivery.taken for delivery in self._deliveries), default=0)
        finding = Finding(
            "evidence.not_taken",
            "No audit sink has taken the log, and what no sink has is not acted upon (evidence.fail_closed).",
            f"a sink with all entries of the log within {self._wait_s:g} s",
            f"the best of {len(self._deliveries)} lacks {behind}",
            "see sink_failed in this party's log; mend the sink, or add one",
        )
        return PolicyRefusal("log", [finding])

    def _told(self, kind: str, sink: str, reason: str) -> None:
        self._news.append(News(kind, sink, reason))


def _opened(settings: SinkSettings) -> Sink:
    if isinstance(settings, JsonlSinkSettings):
        return JsonlSink(settings.path, settings.format, fsync=settings.fsync)
    return SyslogSink(settings)
