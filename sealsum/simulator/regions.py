"""Two levels of a sum: silos share in their region, regions pass shares up, and nobody opens a region's.

Sharing is linear, so a region's sum can travel as it is held: server j of a region adds up its silos' shares
and hands that one vector to server j of the next level, which adds up regions. Only there are all servers'
shares added, once: the sum that is opened is the flat one, element by element, and a region's own sum is in
nobody's hands. A region with fewer silos than the minimum passes nothing up: its silos have dropped out.

What is not here: regional servers as processes. Knows no training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from privacy.errors import Unprocessable
from privacy.ids import SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import Ring, combine, ring_to_bytes
from sealsum.simulator.sums import Weights, refuse_unsound, shares_of_servers
from silo_agent.update import Update


@dataclass(frozen=True)
class Regions:
    """Which region each silo belongs to, and how many silos a region needs before it passes anything up."""

    of: Mapping[SiloId, str]
    least: int

    def __post_init__(self) -> None:
        if self.least < 2:
            raise Unprocessable(f"region_least: expected 2 or more, got {self.least}: one silo is no sum")

    def fit(self, silos: Collection[SiloId]) -> frozenset[SiloId]:
        """Those of ``silos`` whose region has enough of them.

        Raises:
            Unprocessable: a silo belongs to no region.
        """
        members = self._members(silos)
        return frozenset(silo for one in members.values() if len(one) >= self.least for silo in one)

    def ring_sum(self, plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights) -> Ring:
        """Encode, share in each region, add there, add above, combine: uint32[vector_length].

        Raises:
            Unprocessable: a region below the minimum would pass its sum up; fewer silos are left than the
                plan asks for, or the sum could wrap. UpdateOutOfRange: as ``secure_ring_sum``.
        """
        members = self._members(updates)
        small = sorted(region for region, silos in members.items() if len(silos) < self.least)
        if small:
            raise Unprocessable(
                f"regions: expected {self.least} silos or more in each, got fewer in {', '.join(small)}"
            )
        refuse_unsound(plan, updates)
        above: list[Ring] = [np.zeros(plan.vector_length, dtype=np.uint32) for _ in plan.servers]
        for silos in members.values():
            own = shares_of_servers(plan, {silo: updates[silo] for silo in silos}, weights)
            above = [total + share for total, share in zip(above, own, strict=True)]
        return combine([ring_to_bytes(share) for share in above], plan.vector_length)

    def _members(self, silos: Collection[SiloId]) -> dict[str, list[SiloId]]:
        nowhere = sorted(silo for silo in silos if silo not in self.of)
        if nowhere:
            raise Unprocessable(f"regions: expected one for each silo, got none for {', '.join(nowhere)}")
        members: dict[str, list[SiloId]] = {}
        for silo in sorted(silos):
            members.setdefault(self.of[silo], []).append(silo)
        return members
