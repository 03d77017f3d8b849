"""The silo's log at its audit sinks: what must be there before data are read for a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policies.audit_sinks.settings import sinks_or_default
from policies.audit_sinks.sinks import AuditSinks
from policies.loader import LoadedPolicy
from privacy.transparency.leaf import Record
from silo_agent.log import SiloLog
from silo_agent.settings import SiloSettings


class AuditCopies:
    """One agent's sinks. What people's commands log meanwhile goes along with the next round."""

    def __init__(self, settings: SiloSettings, log: SiloLog) -> None:
        """Read how far each sink has come, and begin to deliver.

        Raises:
            ConfigurationError: see ``AuditSinks``.
        """
        sinks = sinks_or_default(settings.audit_sinks, settings.state_dir, settings.state_dir)
        self._log = log
        self._sinks = AuditSinks(sinks, settings.state_dir, log.feed(), settings.audit_wait_s)
        self._sinks.start()

    def assert_enough(self, policies: Sequence[LoadedPolicy]) -> None:
        """As many sinks as the federation's threat model and the silo's own ask for.

        Raises:
            ConfigurationError: fewer.
        """
        self._sinks.assert_enough(policies)

    def gate(self, policies: Sequence[LoadedPolicy]) -> None:
        """No further, before a sink has all that is logged; what became of sinks is logged first or last.

        Raises:
            PolicyRefusal: ``evidence.too_few_sinks``, ``evidence.not_taken``.
        """
        self._log.refresh()
        try:
            self._sinks.gate(policies)
        finally:
            self._enter_news()

    def watch(self, watcher: Callable[[Sequence[Record]], None]) -> None:
        """Call this with entries of the silo's log as they come."""
        self._log.feed().watch(watcher)

    def states(self) -> dict[str, tuple[bool, int]]:
        """As ``AuditSinks.states``."""
        return self._sinks.states()

    def close(self) -> None:
        """Deliver what can be at once, and end."""
        self._enter_news()
        self._sinks.close()

    def _enter_news(self) -> None:
        for one in self._sinks.news():
            self._log.record("sink_failed" if one.kind == "sink_failed" else "sink_recovered", one.body)
