"""Rounds that wait for nobody: a sum is opened as soon as a buffer holds enough updates, of whatever model
each silo began from (FedBuff: Nguyen et al. 2022, arXiv 2106.06639, algorithm 1).

Every silo trains at its own pace and has one seat in a buffer: it delivers, waits for the sum that it is in,
and begins anew from the model that came of it. So a buffer of K updates is a cohort of K silos, and each
update is in one sum. A silo weighs its update by (1 + s)^(-1/2) before it shares it, s being how many models
came out since the one that it began from; beyond the most that is allowed it begins anew without delivering.

It is the arithmetic only, by a clock that is made up: no federation of processes has such rounds, and none
can be under DP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aggregator.server_step import STEPS, Moment, Opened
from privacy.errors import Unprocessable
from privacy.ids import SiloId
from privacy.update import model_bytes, model_digest
from sealsum.simulator.federation import Federation, Standing
from sealsum.simulator.plan import LEAST_SILOS, simulated_plan
from sealsum.simulator.sums import open_sum
from silo_agent.update import Update, kept_of


@dataclass(frozen=True)
class Work:
    """What one silo is at."""

    start: NDArray[np.float32] = field(repr=False)
    version: int
    """How many models had come out when it began."""
    done_at: float


@dataclass(frozen=True)
class Running:
    """Between two sums: the federation's standing, and every silo at work."""

    standing: Standing
    works: Mapping[SiloId, Work]
    now: float = 0.0
    """In units of the fastest silo's round."""
    in_sum: Mapping[SiloId, int] = field(default_factory=dict)
    """Staleness of each update in the last sum."""
    staleness: float = 0.0
    """The mean staleness of each sum so far, added up."""


@dataclass(frozen=True)
class Buffer:
    """When a sum is opened, and how fast silos are."""

    size: int
    """Updates a sum."""
    pace: Mapping[SiloId, float]
    """How long each silo takes to train; 1 for those that are not named."""
    staleness_max: int = 10


@dataclass(frozen=True)
class Buffered:
    """A federation whose rounds are buffers."""

    federation: Federation
    buffer: Buffer

    def __post_init__(self) -> None:
        silos, training = self.federation.silos, self.federation.terms.training
        size, pace = self.buffer.size, self.buffer.pace
        if not LEAST_SILOS <= size <= len(silos):
            raise Unprocessable(f"buffer: expected {LEAST_SILOS} to {len(silos)} updates, got {size}")
        if not set(pace) <= set(silos) or not all(0 < one < math.inf for one in pace.values()):
            raise Unprocessable(f"pace: expected times above 0 of {', '.join(sorted(silos))}")
        if self.federation.terms.dp is not None:
            raise Unprocessable(
                "buffer: expected no dp: an update that waits is of an earlier round than the one that pays"
            )
        remembers = training.local.control != "none" or training.local.projection or bool(training.phases)
        if training.algorithm != "fedavg" or training.weights != "uniform" or remembers or training.sparse:
            raise Unprocessable(
                "buffer: expected fedavg or a name for it, uniform weights, and nothing that silos remember"
            )

    def at(self, start: NDArray[np.float32]) -> Running:
        """Everybody begins from ``start``, float32[d]."""
        works = {silo: Work(start, 0, self._pace(silo)) for silo in self.federation.silos}
        return Running(self.federation.at(start), works)

    def after_sum(self, running: Running) -> Running:
        """The buffer fills, its sum is opened, the server steps, and whoever is in it begins anew.

        Raises:
            Unprocessable: as ``Federation.after_round``; an algorithm would remember. UpdateOutOfRange: as
                there.
        """
        standing = running.standing
        works, version = dict(running.works), standing.rounds_done
        seats: dict[SiloId, Work] = {}
        now = running.now
        while len(seats) < self.buffer.size:
            silo = min((one for one in works if one not in seats), key=lambda one: (works[one].done_at, one))
            now = max(now, works[silo].done_at)
            if version - works[silo].version > self.buffer.staleness_max:
                works[silo] = Work(standing.model, version, now + self._pace(silo))
            else:
                seats[silo] = works[silo]
        staleness = {silo: version - work.version for silo, work in seats.items()}
        model = self._stepped(standing, seats, staleness)
        for silo in seats:
            works[silo] = Work(model.model, version + 1, now + self._pace(silo))
        mean = sum(staleness.values()) / len(staleness)
        return Running(model, works, now, staleness, running.staleness + mean)

    def _pace(self, silo: SiloId) -> float:
        return self.buffer.pace.get(silo, 1.0)

    def _stepped(
        self, standing: Standing, seats: Mapping[SiloId, Work], staleness: Mapping[SiloId, int]
    ) -> Standing:
        federation, terms = self.federation, self.federation.terms
        moment = Moment(standing.rounds_done + 1, federation.rounds, standing.averaged)
        digest = model_digest(terms.model, [model_bytes(standing.model)])
        plan = simulated_plan(terms, sorted(seats), digest, moment.round, federation.rounds)
        updates: dict[SiloId, Update] = {
            silo: federation.update_of(silo, work.start, number=work.version + 1)
            for silo, work in seats.items()
        }
        if any(kept_of(update) for update in updates.values()):
            raise Unprocessable("buffer: expected an algorithm that remembers nothing")
        weights = {silo: weight_of_staleness(one) for silo, one in staleness.items()}
        total = open_sum(plan, updates, weights, federation.add)
        opened = Opened(standing.model, total.total, total.weight, total.further)
        stepped = STEPS[terms.training.algorithm](opened, standing.slots, terms.training, moment)
        averaged = standing.averaged + moment.in_tail(terms.training.server)
        return Standing(stepped.model, stepped.slots, moment.round, averaged, first=standing.first)


def weight_of_staleness(staleness: int) -> float:
    """ŵ of an update so many models old, in (0, 1]."""
    return 1.0 / math.sqrt(1.0 + staleness)
