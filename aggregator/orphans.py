"""Deleting blobs that no row knows: what a crash left between a blob and its row. Knows no rounds' rules.

A blob is written before its row and deleted after its row says so, so a crash in between leaves a blob too
many, never one too few. One that is old enough and still unknown is nobody's. A row's blob is never deleted:
looking for the row and deleting are one step on the event loop, as storing a row is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aggregator.blob_store import Blobs
from aggregator.meters import BlobMeters
from aggregator.not_now import NotNow
from aggregator.store import Reader, Store
from aggregator.stores import Kind

_log = logging.getLogger("sealsum.blobs")
Known = Callable[[Reader, str], bool]
"""Whether a row knows what lies under this first segment, or something else sees to deleting it."""
Expected = Callable[[Reader], set[str]]
"""First segments that must be there."""


@dataclass(frozen=True)
class Watched:
    """Blobs of one kind, and what rows say of them."""

    blobs: Blobs
    known: Known
    expected: Expected = lambda _view: set()


@dataclass(frozen=True)
class Collected:
    """What one pass came to; of a dry run, what it would have come to."""

    deleted: int
    """Blobs."""
    deleted_bytes: int
    names: tuple[str, ...]
    """What they lay under, as ``kind/name``."""
    missing: tuple[str, ...]
    """Blobs that rows know and the store does not have, as ``kind/name``: restore them from a backup."""


class Collector:
    """One server's."""

    def __init__(
        self,
        store: Store,
        watched: Mapping[Kind, Watched],
        after_s: float,
        every_s: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``after_s``: how old a blob without a row must be, by the clock of whatever holds it."""
        self._store = store
        self._watched = dict(watched)
        self._after_s = after_s
        self._every_s = every_s
        self._now = now
        self._stopping = asyncio.Event()
        self._passing = asyncio.Lock()

    def stop(self) -> None:
        """The server drains."""
        self._stopping.set()

    async def run(self, meters: BlobMeters) -> None:
        """Collect now and from time to time, until told to stop."""
        while not self._stopping.is_set():
            try:
                found = await self.collect()
            except NotNow as away:
                _log.warning("blobs_not_collected", extra={"reason": str(away)})
            else:
                meters.collected(found.deleted, found.deleted_bytes, len(found.missing))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._stopping.wait()

    async def beside(self, work: Callable[[], Coroutine[Any, Any, None]], meters: BlobMeters) -> None:
        """Run along with the server's work, and end with it; a failure of either is raised."""
        collecting = asyncio.create_task(self.run(meters))
        working = asyncio.create_task(work())
        try:
            await asyncio.wait({collecting, working}, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            if collecting.done():
                collecting.result()  # it ends by itself only where it fails
            await working
            await collecting
        finally:
            working.cancel()
            collecting.cancel()

    async def collect(self, dry_run: bool = False) -> Collected:
        """One pass over all kinds, one at a time. ``dry_run`` deletes nothing.

        Raises:
            NotNow: the store or the database does not answer; what was deleted until then was nobody's.
        """
        async with self._passing:
            return await self._pass(dry_run)

    async def _pass(self, dry_run: bool) -> Collected:
        deleted, size, names, missing = 0, 0, [], []
        for kind, watched in self._watched.items():
            groups = await asyncio.to_thread(_grouped, watched.blobs)
            with self._store.read() as view:
                expected = watched.expected(view)
            missing += [f"{kind}/{name}" for name in sorted(expected - groups.keys())]
            for name, group in groups.items():
                if self._now() - group.newest > self._after_s and self._delete(watched, name, dry_run):
                    deleted, size = deleted + group.blobs, size + group.size
                    names.append(f"{kind}/{name}")
                    if not dry_run:
                        _log.info(
                            "blobs_collected", extra={"kind": kind, "count": group.blobs, "bytes": group.size}
                        )
        for name in missing:
            _log.error("blob_missing", extra={"path": name})
        return Collected(deleted, size, tuple(names), tuple(missing))

    def _delete(self, watched: Watched, name: str, dry_run: bool) -> bool:
        """Whether it goes. No await lies between looking and deleting, so that no row comes in between."""
        with self._store.read() as view:
            if watched.known(view, name):
                return False
        if not dry_run:
            watched.blobs.scrub(name)
        return True


@dataclass(frozen=True)
class _Group:
    """All blobs under one first segment: a model, or what silos sent in a round."""

    blobs: int
    size: int
    newest: float


def _grouped(blobs: Blobs) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for one in blobs.listing():
        before = groups.get(one.segments[0], _Group(0, 0, 0.0))
        groups[one.segments[0]] = _Group(
            before.blobs + 1, before.size + one.size, max(before.newest, one.modified)
        )
    return groups
