"""Whether the aggregator begins anything new: an operator can hold new jobs, or new rounds too, for a while.

What runs goes on to its end: the open round always, and running jobs unless rounds are held as well. It is
kept in the database, so that a restart in the middle of the maintenance begins nothing. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import delete, insert, select

from aggregator.job_rows import OPEN_STATES, JobRow, change_job, open_jobs
from aggregator.presence import Bell
from aggregator.store import Reader, Store, Writer
from aggregator.tables import drains
from privacy.errors import Conflict
from privacy.wire.upkeep import Drain, DrainRequest

_ROW: Final = "drain"


class Maintenance:
    """One aggregator's. Touched on one event loop only."""

    def __init__(self, store: Store, bell: Bell, now: Callable[[], float]) -> None:
        """Take up what is stored; ``now`` is in Unix seconds."""
        self._store = store
        self._bell = bell
        self._now = now
        with store.read() as view:
            self.drain = _stored(view)

    def begin(self, wanted: DrainRequest, by: str) -> Drain:
        """Begin nothing new from now on. The same again is the same; another one replaces what is held.

        Raises:
            Conflict: this very thing is held already, for another reason.
        """
        held = self.drain
        if held is not None and held.what == wanted.what:
            if held.reason == wanted.reason:
                return held
            raise Conflict(
                f"drain: expected none of {wanted.what}, got one that stands since {held.at}: {held.reason}; "
                "sealsum aggregator resume ends it"
            )
        drain = Drain(what=wanted.what, reason=wanted.reason, by=by, at=int(self._now()))
        with self._store.write() as transaction:
            transaction.connection.execute(delete(drains))
            transaction.connection.execute(insert(drains).values(name=_ROW, **drain.model_dump()))
            transaction.record("drain_began", what=drain.what, reason=drain.reason, person=by)
            _wake_watchers(transaction)
        self._changed(drain)
        return drain

    def end(self, by: str) -> None:
        """Go on. Doing it twice is once."""
        if self.drain is None:
            return
        with self._store.write() as transaction:
            transaction.connection.execute(delete(drains))
            transaction.record("drain_ended", what=self.drain.what, person=by)
            _wake_watchers(transaction)
        self._changed(None)

    def holds_back(self, job: JobRow) -> bool:
        """Whether no round of this job may begin now."""
        return self.drain is not None and (self.drain.what == "rounds" or job.round == 0)

    def why_waiting(self, job: JobRow) -> str:
        """What is to be said of a job besides its own reason; "" where nothing holds it."""
        if self.drain is None or job.state not in OPEN_STATES or not self.holds_back(job):
            return ""
        return f"held back by the operator: {self.drain.reason}"

    def told(self) -> str:
        """One line for whoever watches the server."""
        return "begins jobs and rounds" if self.drain is None else f"no new {self.drain.what}"

    def _changed(self, drain: Drain | None) -> None:
        self.drain = drain
        self._bell.ring()


def _stored(view: Reader) -> Drain | None:
    row = view.connection.execute(select(drains)).one_or_none()
    return None if row is None else Drain(what=row.what, reason=row.reason, by=row.by, at=row.at)


def _wake_watchers(transaction: Writer) -> None:
    """Whoever watches an open job is told why it waits."""
    for _, job in list(open_jobs(transaction)):
        change_job(transaction, job.job)
