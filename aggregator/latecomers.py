"""Silos that came too late for the last rounds of a job: the next one waits for them a while longer.

A round begins once enough silos are here and a grace period has passed, so a silo whose machine or line is
slow would be left out of every round of a fast federation, and its patients of the model. Whoever was left
out and has been heard of since is waited for: one more grace period for each round in a row that went without
it, up to a bound, so that nobody holds up the others for good. A silo that is silent is not waited for. No
silo is in a round that it has not joined, and a threat model's minimum holds as ever. Who was left out is in
the database (``aggregator.turnouts``), so that a restart owes it the same; until a round begins, a process
waits for whoever it has heard of since it started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from aggregator.presence import Presence
from privacy.ids import JobId, SiloId

GRACES_MAX: Final = 4
"""Longest extra wait, in grace periods."""


@dataclass
class _Job:
    """The rounds of one job so far."""

    left_out: dict[SiloId, int] = field(default_factory=dict)
    """How many rounds in a row went without a silo."""
    offered_at: float = 0.0


class Latecomers:
    """What one aggregator remembers of who was left out; on one event loop."""

    def __init__(self, presence: Presence, grace_s: float) -> None:
        self._presence = presence
        self._grace_s = grace_s
        self._jobs: dict[JobId, _Job] = {}
        self._began_at = presence.now

    def recall(self, job: JobId, left_out: Mapping[SiloId, int]) -> None:
        """How many rounds in a row went without whom, before this process; nothing where it knows better."""
        self._jobs.setdefault(job, _Job(dict(left_out), self._began_at))

    def invited(self, job: JobId, willing: Collection[SiloId], cohort: Collection[SiloId]) -> None:
        """A round begins with these of the silos that would take part."""
        known = self._jobs.setdefault(job, _Job())
        known.left_out = {silo: known.left_out.get(silo, 0) + 1 for silo in willing if silo not in cohort}
        known.offered_at = self._presence.now

    def owed(self, job: JobId, willing: Collection[SiloId]) -> frozenset[SiloId]:
        """Who was left out of the last round, has been heard of since, and is not here at the moment."""
        known = self._jobs.get(job)
        if known is None:
            return frozenset()
        late = [silo for silo in willing if silo in known.left_out]
        heard = self._presence.heard_since(late, known.offered_at)
        return heard - self._presence.here(late)

    def extra_s(self, job: JobId, owed: Collection[SiloId]) -> float:
        """How much longer than the grace period to wait for them."""
        known = self._jobs.get(job)
        if known is None or not owed:
            return 0.0
        return self._grace_s * min(GRACES_MAX, max(known.left_out[silo] for silo in owed))

    def forget(self, job: JobId) -> None:
        """The job is over."""
        self._jobs.pop(job, None)

    def forget_all(self) -> None:
        """Another process may have worked meanwhile."""
        self._jobs.clear()
