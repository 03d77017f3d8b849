"""A federation in memory: silos train by the agent's own algorithms, the sum is opened, the server steps.

What it leaves out is everything around the arithmetic: signatures, threat models, ledgers, the network. It
charges nothing, so it is for data that are public or synthetic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from aggregator.server_step import STEPS, Further, Moment, Opened, Reals, first_slots
from policies.invited import Drawn, invited
from privacy.ids import Digest, SiloId
from privacy.plan import AlgorithmName
from privacy.sent import Sent, sent_in
from privacy.update import model_bytes, model_digest
from sealsum.simulator.plan import LEAST_SILOS, NOBODY, RoundTerms, simulated_plan
from sealsum.simulator.sums import RingSum, open_sum, plain_ring_sum
from silo_agent.algorithms.catalogue import ALGORITHMS, settle, update_of
from silo_agent.algorithms.memory import FIRST, Memory
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ModelAdapter
from silo_agent.update import FloatUpdate, Update, kept_of


@dataclass(frozen=True)
class Standing:
    """Where a job stands between two rounds."""

    model: NDArray[np.float32] = field(repr=False)
    """float32[d]: what the next round starts from, or the result after the last."""
    slots: Mapping[str, Reals] = field(repr=False)
    """What the server's optimiser remembers."""
    rounds_done: int = 0
    averaged: int = 0
    """Rounds that are in a tail average."""
    memories: Mapping[SiloId, Memory] = field(default_factory=dict, repr=False)
    """What each silo remembers, by the rule that the agent keeps on disk."""
    first: NDArray[np.float32] | None = field(default=None, repr=False)
    """float32[d]: the job's first model."""


@dataclass(frozen=True)
class Federation:
    """Silos with their records, and the terms of the job they take part in."""

    terms: RoundTerms
    adapter: ModelAdapter
    silos: Mapping[SiloId, Records] = field(repr=False)
    rounds: int = 1
    add: RingSum = plain_ring_sum
    """``secure_ring_sum`` for every step of the real scheme; the sum is the same."""
    passes_up: Callable[[Collection[SiloId]], Collection[SiloId]] = frozenset
    """Which of the silos that sent an update are in the sum: all, or those of large enough regions."""
    algorithms: Mapping[AlgorithmName, Callable[[Task], Update]] = field(default_factory=lambda: ALGORITHMS)
    """``LINEAR`` for sweeps over linear models; the updates are the same."""
    workbench: Workbench = field(default_factory=Workbench, repr=False)
    """Silos have one model, and take turns at it."""

    def train(self, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model after all rounds, float32[d]. Raises as ``after_round``."""
        standing = self.at(start)
        while standing.rounds_done < self.rounds:
            standing = self.after_round(standing)
        return standing.model

    def at(self, start: NDArray[np.float32]) -> Standing:
        """Before the first round, which starts from ``start``, float32[d]."""
        return Standing(start, first_slots(start, self.terms.training.server), first=start)

    def after_round(self, standing: Standing, dropped: Collection[SiloId] = ()) -> Standing:
        """One round: every silo but those that ``dropped`` out trains, the sum is opened, the server steps.

        Raises:
            Unprocessable: training diverged, or too few silos are left. UpdateOutOfRange: an update does not
                fit the vector's terms.
        """
        training = self.terms.training
        moment = Moment(standing.rounds_done + 1, self.rounds, standing.averaged)
        digest = model_digest(self.terms.model, [model_bytes(standing.model)])
        rank = Drawn(NOBODY, training.phase(moment.round), moment.round)
        asked = invited(rank, {silo: silo for silo in self.silos}, LEAST_SILOS)
        plan = simulated_plan(self.terms, asked, digest, moment.round, self.rounds)
        sent = sent_in(
            training, self.terms.model, self.terms.job, moment.round, standing.model, standing.first
        )
        updates = {
            silo: self.update_of(
                silo, standing.model, standing.memories.get(silo, FIRST), moment.round, digest, sent
            )
            for silo in asked
            if silo not in dropped
        }
        summed = self.passes_up(updates)
        updates = {silo: update for silo, update in updates.items() if silo in summed}
        weights = {silo: self.weight_of(silo, update) for silo, update in updates.items()}
        total = open_sum(plan, updates, weights, self.add)
        opened = Opened(standing.model, total.total, total.weight, total.further)
        if sent is not None:
            size = len(standing.model)
            opened = replace(opened, total=sent.spread(total.total, size), sent=sent.mask(size))
        stepped = STEPS[training.algorithm](opened, standing.slots, training, moment)
        averaged = standing.averaged + moment.in_tail(training.server)
        memories = self._remembered(standing, updates, stepped.model, total.further)
        return Standing(stepped.model, stepped.slots, moment.round, averaged, memories, standing.first)

    def _remembered(
        self,
        standing: Standing,
        updates: Mapping[SiloId, Update],
        model_out: NDArray[np.float32],
        further: Further,
    ) -> dict[SiloId, Memory]:
        """Survivors remember the round; whoever dropped out remembers what it remembered before."""
        memories, training = dict(standing.memories), self.terms.training
        if any(kept_of(update) for update in updates.values()):
            digest = model_digest(self.terms.model, [model_bytes(model_out)])
            for silo, update in updates.items():
                arrays = settle(training, kept_of(update), model_out, further)
                memories[silo] = Memory(arrays, standing.rounds_done + 1, digest)
        return memories

    def update_of(
        self,
        silo: SiloId,
        start: NDArray[np.float32],
        memory: Memory = FIRST,
        number: int = 1,
        digest: Digest | None = None,
        sent: Sent | None = None,
    ) -> Update:
        """What one silo sends in round ``number``, which starts from ``start``, noise included."""
        terms = self.terms
        task = Task(
            model=terms.model,
            training=terms.training.at(number),
            dp=terms.dp,
            vector=terms.vector,
            start=start,
            adapter=self.adapter,
            records=self.silos[silo],
            workbench=self.workbench,
            further=terms.further,
            memory=memory,
            digest=digest,
            round=number,
            sent=sent,
        )
        return update_of(task, self.algorithms)

    def weight_of(self, silo: SiloId, update: Update) -> float:
        """ŵ of a silo, by the job's weights."""
        training = self.terms.training
        if training.weights == "uniform":
            return 1.0
        if isinstance(update, FloatUpdate) and update.weight is not None:
            return update.weight
        return min(len(self.silos[silo]), training.weight_cap) / training.weight_cap
