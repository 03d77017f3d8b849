"""An aggregator and agents' halves of ``bfv`` or ``ckks`` in one process: production code at both ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from privacy.plan import JobSpec, VectorTerms
from tests.federation import Federation, demo_policy_text
from tests.pairwise_world import PairwiseWorld

VECTORS = {
    "bfv": VectorTerms(coordinate_bound=2.0, scale_bits=20),
    "ckks": VectorTerms(coordinate_bound=2.0, scale_bits=16),
}


def he_federation(scheme: str = "bfv", silos: int = 4) -> Federation:
    """Hospitals and an aggregator, without share servers."""
    return Federation(silos=silos, servers=0, policy_text=demo_policy_text(scheme))


@dataclass
class HeWorld(PairwiseWorld):
    """One federation whose silos share a key."""

    federation: Federation = field(default_factory=he_federation)

    @property
    def scheme(self) -> str:
        return "ckks" if "scheme: ckks" in self.federation.policy_text else "bfv"

    def spec(self, parameters: int = 5, **changes: Any) -> JobSpec:
        """A small job of one round, whose deadlines are short."""
        terms = {"scheme": self.scheme, "vector": VECTORS[self.scheme], **changes}
        return super().spec(parameters, **terms)
