"""Two processes that try to open the same rounds at the same moments; spawned, so it imports little."""

from __future__ import annotations

from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, TypeAlias

from aggregator.audit_log import AuditLog, Overtaken
from aggregator.store import Store
from policies.audit_sinks.sinks import Taken
from privacy.errors import Conflict
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, PartyId

RACES: Final = 12
CONTEXTS: Final = [Context(Digest(f"{number:064x}")) for number in range(RACES)]
SURVIVORS: Final = Digest("0" * 64)
Outcomes: TypeAlias = "Queue[tuple[int, int, str]]"
"""Round, racer, and ``opened`` or the name of the refusal."""


def open_store(url: str, key: SigningKey) -> Store:
    """A store as a server's process opens it."""
    return Store(url, AuditLog("fed", PartyId("aggregator"), key), Path(mkdtemp()), ())


def race(url: str, pem: bytes, racer: int, logged: bool, barrier: Barrier, outcomes: Outcomes) -> None:
    """One of the two: tries to open every round; ``logged`` as servers do it, else by the key alone."""
    store = open_store(url, SigningKey.from_pem(pem))
    for number, ctx in enumerate(CONTEXTS):
        try:
            with store.write() as transaction:
                assert transaction.phase(ctx) == "cleared"  # takes its snapshot before the race
                barrier.wait(60)
                transaction.add_opening(ctx, SURVIVORS, Taken(0))
                if logged:
                    transaction.record("sum_opened", context=ctx)
            outcomes.put((number, racer, "opened"))
        except (Conflict, Overtaken) as refusal:
            outcomes.put((number, racer, type(refusal).__name__))
        barrier.wait(60)
    store.close()
