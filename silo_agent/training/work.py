"""A round's work as training is given it, and what a trainer does with it. Knows no keys and no network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from privacy.plan import JobSpec, RoundPlan
from silo_agent.algorithms.memory import Memory
from silo_agent.checked_model import CheckedModel
from silo_agent.settings import DatasetSettings, SiloSettings
from silo_agent.update import Update


@dataclass(frozen=True)
class Work:
    """One admitted round: public terms, and where the silo's records lie."""

    job: JobSpec
    plan: RoundPlan
    dataset: DatasetSettings
    least: int
    """Units of privacy below which the silo does not train."""


@dataclass(frozen=True)
class RoundModels:
    """The models that a round needs, each hashed by this silo."""

    start: CheckedModel
    """That the round starts from."""
    evaluated: CheckedModel | None = None
    """Of an evaluation."""
    first: CheckedModel | None = None
    """The job's first, where what is sent depends on it."""


@dataclass(frozen=True)
class PaidWork:
    """Evidence that the round's charge is reserved, or that it has none: ``paid_work`` makes it."""

    work: Work


@dataclass(frozen=True)
class Trained:
    """What training hands back; it leaves the silo inside a sum only."""

    update: Update = field(repr=False)
    weight: float = field(repr=False)
    """ŵ in (0, 1]."""


Recall: TypeAlias = tuple[float | None, ...]


class Trainer(Protocol):
    """Takes a round's steps in order: ``begin``, ``check``, ``read``, ``train``, and ``recall`` if asked."""

    def begin(self, work: Work) -> None:
        """Find the model's code, before anything is fetched.

        Raises:
            PolicyRefusal, ConfigurationError: as ``adapter_for``.
        """

    def check(self, models: RoundModels) -> str:
        """What will compute the round's gradients, for the log; before anything is charged or read.

        Raises:
            PolicyRefusal, ConfigurationError: the model cannot be trained, privately where the plan says so.
        """

    def read(self) -> None:
        """Read the records, or find that those held are still what is there.

        Raises:
            ConfigurationError: as ``read_dataset``. PolicyRefusal: there are fewer units than ``least``.
        """

    def train(self, paid: PaidWork, memory: Memory) -> Trained:
        """Draw, compute and, under DP, noise.

        Raises:
            SealsumError: as the algorithm; the round stays charged.
        """

    def recall(self) -> Recall | None:
        """Of the round's model on the silo's own patients, by class; ``None`` where no class is predicted.

        Raises:
            SealsumError: the model does not run on them.
        """

    def close(self) -> None:
        """Let go of records and models."""


TrainerOf: TypeAlias = Callable[[SiloSettings, threading.Event], Trainer]
"""Makes a trainer; the event says that the agent was told to end."""
