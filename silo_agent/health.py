"""How a running agent is: its checks of readiness, and its gauges brought up to date."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from policies.health.checks import Check, assert_in_force, assert_room
from policies.health.listener import HealthListener
from policies.health.settings import STATE_FREE_BYTES
from privacy.errors import SealsumError
from privacy.keystore import Identity
from silo_agent.agent import Agent
from silo_agent.contact import Contact
from silo_agent.data.sources import assert_readable
from silo_agent.ledger.statement import statement_of
from silo_agent.meters import EventHandler, SiloMeters
from silo_agent.settings import SiloSettings

CONTACT_S = 120.0
"""Without an answer for so long the agent is not ready: polls end after 20 s, and retries after 60 s."""
OFFSET_S = 300.0
"""The most that clocks may differ; certificates begin five minutes before they are issued."""


class AgentHealth:
    """One agent's."""

    def __init__(self, settings: SiloSettings, identity: Identity, agent: Agent, meters: SiloMeters) -> None:
        """Count from now on; ε is read from the ledgers once, and follows the agent's log from there."""
        self._settings = settings
        self._agent = agent
        self.meters = meters
        self.meters.account(statement_of(settings, identity, datetime.now(UTC)))
        self.meters.charter_epoch.set(agent.pin.charter.epoch)
        self._handler = EventHandler(self.meters)
        logging.getLogger("silo_agent").addHandler(self._handler)
        agent.copies.watch(self.meters.logged)

    def close(self) -> None:
        """Count no more."""
        logging.getLogger("silo_agent").removeHandler(self._handler)

    def checks(self) -> tuple[Check, ...]:
        """What must hold for the agent to take part in rounds."""
        own = self._settings.state_dir / "identity.pem"
        return (
            Check("state_dir", lambda: assert_room(self._settings.state_dir, STATE_FREE_BYTES)),
            Check("certificate", lambda: assert_in_force(own, datetime.now(UTC))),
            Check("aggregator", lambda: assert_heard(self._agent.egress.contact)),
            Check("clock", lambda: assert_same_time(self._agent.egress.contact)),
            Check("datasets", self._datasets),
            Check("audit_sinks", self._sinks),
        )

    def refresh(self) -> None:
        """Bring gauges up to date."""
        last = self._agent.egress.contact.last
        if last is not None:
            self.meters.last_contact.set(last.at.timestamp())
            if last.clock_offset_s is not None:
                self.meters.clock_offset.set(last.clock_offset_s)
        self.meters.sinks(self._agent.copies.states())

    def _datasets(self) -> str:
        for dataset in self._settings.datasets.values():
            assert_readable(dataset)
        return f"{len(self._settings.datasets)} readable"

    def _sinks(self) -> str:
        states = self._agent.copies.states()
        failing = sorted(name for name, (up, _) in states.items() if not up)
        if len(failing) == len(states):
            raise SealsumError(
                f"audit_sinks: expected one that takes entries, got none; failing: {', '.join(failing)}"
            )
        return f"{len(states) - len(failing)} of {len(states)} take entries"


@contextmanager
def health_of(settings: SiloSettings, identity: Identity, agent: Agent, meters: SiloMeters) -> Iterator[None]:
    """Answer probes while the block runs, if ``health:`` says where.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    if settings.health is None:
        yield
        return
    health = AgentHealth(settings, identity, agent, meters)
    try:
        with HealthListener(settings.health, health.meters, health.checks(), health.refresh):
            yield
    finally:
        health.close()


def assert_heard(contact: Contact) -> str:
    """Refuse to be ready where no server has answered lately.

    Raises:
        SealsumError: none has for ``CONTACT_S``.
    """
    seconds = contact.seconds_since()
    if seconds is None or seconds > CONTACT_S:
        ago = "never" if seconds is None else f"{seconds:.0f} s ago"
        raise SealsumError(
            f"aggregator: expected an answer within {CONTACT_S:.0f} s, the last one came {ago}; "
            "run: sealsum silo doctor"
        )
    return f"answered {seconds:.0f} s ago"


def assert_same_time(contact: Contact) -> str:
    """Refuse to be ready where this clock and the servers' differ by more than certificates bear.

    Raises:
        SealsumError: they do.
    """
    offset = None if contact.last is None else contact.last.clock_offset_s
    if offset is None:
        return "no server has told its time"
    if abs(offset) > OFFSET_S:
        raise SealsumError(
            f"clock: expected the servers' time within {OFFSET_S:.0f} s, this machine is "
            f"{offset:+.0f} s ahead; set it by NTP"
        )
    return f"{offset:+.0f} s"
