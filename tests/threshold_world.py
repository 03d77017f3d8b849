"""An aggregator and halves of ``threshold_bfv`` or ``threshold_ckks`` in one process, OpenFHE in its own:
production code at both ends.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from privacy.plan import JobSpec, RoundPlan, VectorTerms
from privacy.secagg.threshold.kept import OpenFhe
from privacy.secagg.threshold.parameters import ThresholdParameters
from privacy.secagg.threshold.worker import Worker
from silo_agent.delivery import Delivery
from silo_agent.schemes.half import Seat
from tests.federation import Federation, demo_policy_text
from tests.pairwise_world import CarriedSilo, PairwiseWorld
from tests.threshold_cohort import openfhe_python

VECTORS = {
    "threshold_bfv": VectorTerms(coordinate_bound=2.0, scale_bits=18),
    "threshold_ckks": VectorTerms(coordinate_bound=2.0, scale_bits=17),
}


def threshold_policy(scheme: str = "threshold_bfv", min_silos: int = 3, dropouts: int = 1) -> str:
    """A threat model under which one hospital may collude, and so many may be missing."""
    text = demo_policy_text("threshold-bfv")
    changes = {
        "min_silos_open: 4": f"min_silos_open: {min_silos}",
        "max_dropouts: 0": f"max_dropouts: {dropouts}",
        "colludes_with_silos: 2": "colludes_with_silos: 1",
        "max_colluding: 2": "max_colluding: 1",
    }
    if scheme == "threshold_ckks":
        changes |= {
            "scheme: threshold_bfv": "scheme: threshold_ckks",
            "behaviour: malicious": "behaviour: honest_but_curious",
            "colludes_with_silos: 2": "colludes_with_silos: 0",
            "max_colluding: 2": "max_colluding: 0",
        }
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def threshold_federation(scheme: str = "threshold_bfv", silos: int = 4) -> Federation:
    """Hospitals and an aggregator, without share servers."""
    return Federation(silos=silos, servers=0, policy_text=threshold_policy(scheme))


@dataclass
class ThresholdWorld(PairwiseWorld):
    """One federation whose silos make a joint key each round. Skips where no interpreter has OpenFHE."""

    federation: Federation = field(default_factory=threshold_federation)
    openfhe: Path | None = field(default_factory=openfhe_python)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.openfhe is not None:
            self.settings = {"threshold_he": {"python": self.openfhe}, **self.settings}

    @property
    def scheme(self) -> str:
        return (
            "threshold_ckks" if "scheme: threshold_ckks" in self.federation.policy_text else "threshold_bfv"
        )

    def spec(self, parameters: int = 5, **changes: Any) -> JobSpec:
        """A small job of one round, whose deadlines are short."""
        terms = {"scheme": self.scheme, "vector": VECTORS[self.scheme], **changes}
        return super().spec(parameters, **terms)

    def silo(self, name: str, value: float, **changes: Any) -> ThresholdSilo:
        """A silo with the interpreter that has OpenFHE."""
        return ThresholdSilo(self, name, value, **changes)


@dataclass
class ThresholdSilo(CarriedSilo):
    """A silo whose OpenFHE is the tests' one, or another."""

    openfhe: OpenFhe | None = None

    def seat(self, plan: RoundPlan, delivery: Delivery) -> Seat:
        world = self.world
        assert isinstance(world, ThresholdWorld)
        return replace(super().seat(plan, delivery), openfhe=self.openfhe or shared_openfhe(world.openfhe))


class _Shared(OpenFhe):
    """One worker process for all silos of all tests, which take turns; real agents have one each."""

    def __init__(self, python: Path | None) -> None:
        super().__init__(python)
        self._turn = threading.RLock()

    @contextmanager
    def worker(self, parameters: ThresholdParameters) -> Iterator[Worker]:
        with self._turn, super().worker(parameters) as worker:
            yield worker


@cache
def shared_openfhe(python: Path | None) -> OpenFhe:
    """It ends with the tests."""
    shared = _Shared(python)
    atexit.register(shared.close)
    return shared
