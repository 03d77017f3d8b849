"""How a running server is: its checks of readiness and its gauges, asked of its event loop from a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from aggregator.job_rows import open_jobs
from aggregator.meters import ServerMeters
from aggregator.settings import ServerSettings
from aggregator.state import AggregatorState
from aggregator.store import Store
from aggregator.stores import Stores
from aggregator.turnouts import totals
from policies.health.checks import Check, assert_in_force, assert_room
from policies.health.listener import HealthListener
from policies.health.settings import STATE_FREE_BYTES
from privacy.errors import SealsumError
from privacy.roster import Charter

LOOP_S: Final = 5.0
"""An event loop that does not answer for so long is stuck."""


class ServerHealth:
    """One server's. Everything of its state is touched on its event loop only, here too."""

    def __init__(
        self,
        settings: ServerSettings,
        meters: ServerMeters,
        store: Store,
        charter: Callable[[], Charter],
        state: AggregatorState | None = None,
        stores: Stores | None = None,
    ) -> None:
        """Count from now on. ``state`` is an aggregator's; ``stores`` are where parts and models lie."""
        self._settings = settings
        self.meters = meters
        self._store = store
        self._charter = charter
        self._state = state
        self._stores = stores
        self._loop: asyncio.AbstractEventLoop | None = None
        store.watch(meters.logged)
        meters.charter_epoch.set(charter().epoch)

    def on(self, loop: asyncio.AbstractEventLoop) -> None:
        """The server's event loop runs now."""
        self._loop = loop

    def alive(self) -> bool:
        """Whether the event loop turns."""
        try:
            self._ask(lambda: "")
        except SealsumError:
            return False
        return True

    def checks(self) -> tuple[Check, ...]:
        """What must hold for the server to do its part in rounds."""
        state_dir = self._settings.state_dir
        always = (
            Check("state_dir", lambda: assert_room(state_dir, STATE_FREE_BYTES)),
            Check("certificate", lambda: assert_in_force(state_dir / "identity.pem", datetime.now(UTC))),
            Check("log", lambda: self._ask(self._log_is_ours)),
            Check("audit_sinks", self._sinks),
            *([] if self._settings.blobs is None or self._stores is None else [self._bucket(self._stores)]),
        )
        # Never a failure: a server that begins nothing new still serves what runs.
        return always if self._state is None else (*always, Check("begins", lambda: self._ask(self._begins)))

    def refresh(self) -> None:
        """Bring gauges up to date; a stuck loop leaves them as they were."""
        self.meters.sinks(self._store.sinks.states())
        self._ask(self._gauge)

    def _bucket(self, stores: Stores) -> Check:
        return Check("blobs", stores.assert_usable)

    def _ask(self, question: Callable[[], str]) -> str:
        """Answer on the event loop.

        Raises:
            SealsumError: it does not come to it.
        """

        async def answer() -> str:
            return question()

        if self._loop is None:
            raise SealsumError("server: expected it to serve, it has not begun")
        asked = asyncio.run_coroutine_threadsafe(answer(), self._loop)
        try:
            return asked.result(LOOP_S)
        except concurrent.futures.TimeoutError as error:
            asked.cancel()
            raise SealsumError(
                f"server: expected its event loop to answer within {LOOP_S:.0f} s; restart it"
            ) from error

    def _log_is_ours(self) -> str:
        try:
            with self._store.read() as view:
                self._store.log.check_ours(view.connection)
        except SQLAlchemyError as error:
            raise SealsumError(
                f"database: expected an answer, got {type(error).__name__}; see to the database"
            ) from error
        return f"{self._store.log.head.size} entries"

    def _begins(self) -> str:
        return "" if self._state is None else self._state.maintenance.told()

    def _gauge(self) -> str:
        charter = self._charter()
        self.meters.charter_epoch.set(charter.epoch)
        self.meters.enrolled.set(len(charter.silos))
        quota = None if self._stores is None else self._stores.quota
        if quota is not None:
            self.meters.blobs.parts.set(quota.held_parts)
            self.meters.blobs.parts_bytes.set(quota.held_bytes)
        if self._state is not None:
            self.meters.present.set(len(self._state.presence.here(charter.silos)))
            with self._store.read() as view:
                self.meters.open_jobs.set(sum(1 for _ in open_jobs(view)))
                for outcome, total in totals(view).items():
                    self.meters.turnouts.labels(outcome).set(total)
        return ""

    def _sinks(self) -> str:
        states = self._store.sinks.states()
        failing = sorted(name for name, (up, _) in states.items() if not up)
        if states and len(failing) == len(states):
            raise SealsumError(f"audit_sinks: expected one that takes entries; failing: {', '.join(failing)}")
        return f"{len(states) - len(failing)} of {len(states)} take entries"


@contextmanager
def listening(settings: ServerSettings, health: ServerHealth) -> Iterator[None]:
    """Answer probes while the block runs, if ``health:`` says where.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    if settings.health is None:
        yield
        return
    with HealthListener(settings.health, health.meters, health.checks(), health.refresh, health.alive):
        yield
