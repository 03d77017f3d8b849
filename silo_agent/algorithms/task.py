"""What an algorithm is given: the round's terms, the model that came, and this silo's records."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from privacy.errors import SealsumError
from privacy.ids import Digest
from privacy.plan import DpTerms, ModelTerms, TrainingTerms, VectorTerms
from privacy.sent import Sent
from privacy.vector_terms import FurtherVector
from silo_agent.algorithms.memory import FIRST, Memory
from silo_agent.data.records import Records
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ModelAdapter, build_model
from silo_agent.problems import Stopped
from silo_agent.queries.question import Question


@dataclass(frozen=True)
class Task:
    """One silo's work in one round. Only ``participation`` makes one under DP, against a reservation."""

    model: ModelTerms
    training: TrainingTerms
    dp: DpTerms | None
    vector: VectorTerms
    start: NDArray[np.float32] = field(repr=False)
    """float32[d]: the checked model."""
    adapter: ModelAdapter | None
    """Of the model that is trained or evaluated; ``None`` for statistics."""
    records: Records = field(repr=False)
    stopping: threading.Event | None = None
    question: Question | None = None
    """What is asked instead of training."""
    workbench: Workbench = field(default_factory=Workbench, repr=False)
    """Kept from round to round, so that a round builds and checks no model again."""
    norm_bound: float | None = None
    """Of the whole update, where the plan has silos prove one (validity)."""
    further: tuple[FurtherVector, ...] = ()
    """What the plan sums beside the update."""
    memory: Memory = FIRST
    """What this silo remembers of the job's earlier rounds."""
    digest: Digest | None = None
    """Of the model that came."""
    round: int = 1
    sent: Sent | None = None
    """Which coordinates the round sums; all where it is none."""

    def module(self) -> nn.Module:
        """The model of the round, in training mode.

        Raises:
            SealsumError: the job trains none: a bug, not a peer's doing.
        """
        if self.adapter is None:
            raise SealsumError("training: expected a job with a model")
        return build_model(self.adapter, self.model, self.start).train()

    def engine(self) -> StepEngine:
        """The engine of the round's model, checked, with its weights loaded.

        Raises:
            SealsumError: the job trains none: a bug, not a peer's doing.
            ConfigurationError: the model cannot be trained privately.
        """
        if self.adapter is None:
            raise SealsumError("training: expected a job with a model")
        expected = self.privacy.normaliser * self.privacy.records_per_unit * self.records.views
        return self.workbench.engine(self.adapter, self.model, self.start, expected)

    @property
    def privacy(self) -> DpTerms:
        """The terms of DP.

        Raises:
            SealsumError: the plan has none: a bug, not a peer's doing.
        """
        if self.dp is None:
            raise SealsumError("training: expected a plan with dp")
        return self.dp

    def moving(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """A gradient, float64[d], zero in layers that stay where they are in this round."""
        if self.sent is None or self.sent.trained is None:
            return gradient
        return np.where(self.sent.trained, gradient, 0.0)

    def refuse_if_stopping(self) -> None:
        """
        Raises:
            Stopped: the agent was told to end.
        """
        if self.stopping is not None and self.stopping.is_set():
            raise Stopped("training: the agent was told to end; the round stays charged")
