"""One job under many settings and one budget: what each trial is, would cost, and how it does in practice.

Every trial's noise is calibrated to the whole budget by the accountant that ledgers charge by. Whether that
budget is spent depends on whose records a trial sees: on public or made-up ones, nobody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from pydantic import ValidationError

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent, round_event
from privacy.errors import ConfigurationError, SealsumError
from privacy.labels import classes_of
from privacy.plan import DpTerms, LocalTerms
from sealsum.job_file import JobFile
from sealsum.simulator.federation import Federation
from sealsum.simulator.linear import LINEAR
from sealsum.simulator.model import adapter_of
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.practice import Practice
from sealsum.yaml_file import faults_of
from silo_agent.algorithms.catalogue import ALGORITHMS
from silo_agent.models.adapters import predict_scores

MOST_TRIALS = 200
Grid = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Trial:
    """The job under one choice of settings."""

    settings: dict[str, float]
    """Path in job.yaml → value."""
    job: JobFile = field(repr=False)
    dp: DpTerms

    @property
    def event(self) -> DpEvent:
        """All that the job would release of a silo's data."""
        one = round_event(self.dp, self.job.training)
        return one.model_copy(update={"steps": one.steps * self.job.rounds})

    @property
    def epsilon(self) -> float:
        """What it would cost a silo."""
        return epsilon([self.event], self.dp.delta)


@dataclass(frozen=True)
class Outcome:
    """How a trial did on records that were held out."""

    trial: Trial
    scores: tuple[float, ...]
    """Part of them told right, once a repetition; empty where training failed."""
    failure: str = ""

    @property
    def mean(self) -> float:
        """Over the repetitions; 0 where training failed."""
        return float(np.mean(self.scores)) if self.scores else 0.0


def trials_of(tree: dict[str, Any], grid: Grid, budget: float) -> list[Trial]:
    """Every choice of the grid, its noise calibrated so that the whole job costs at most ``budget``.

    Args:
        tree: job.yaml as read.

    Raises:
        Unprocessable: the label is none of classes.
        ConfigurationError: the job has no DP, a path is none of job.yaml's, or a choice makes no job.
    """
    if not isinstance(tree.get("dp"), dict):
        raise ConfigurationError("dp: expected the terms of a private job; without DP there is no budget")
    count = int(np.prod([len(values) for values in grid.values()]))
    if count > MOST_TRIALS:
        raise ConfigurationError(f"grid: expected at most {MOST_TRIALS} trials, got {count}; leave some out")
    trials = []
    for choice in product(*grid.values()):
        settings = dict(zip(grid, choice, strict=True))
        filled = deepcopy(tree)
        filled["dp"].pop("noise_multiplier", None)
        filled["dp"]["target_epsilon"] = budget
        for path, value in settings.items():
            _set(filled, path, value)
        try:
            job = JobFile.model_validate(filled)
        except ValidationError as error:
            raise ConfigurationError(f"grid: {spelt(settings)} makes no job:\n{faults_of(error)}") from error
        if job.dp is None:
            raise ConfigurationError("dp: expected the terms of a private job")
        classes_of(job.data.label)  # trials are compared by what they tell right
        trials.append(Trial(settings, job, job.dp))
    return trials


def cost_of_all(trials: Sequence[Trial]) -> float:
    """ε of all trials on the same records, one composition: what choosing on silos' data would cost."""
    return epsilon([trial.event for trial in trials], min(trial.dp.delta for trial in trials))


def tried(trial: Trial, practice: Practice, silos: int, repetitions: int) -> Outcome:
    """Train on simulated silos as large as the job expects, and score on what was held out.

    A silo holds ``normaliser / sample_rate`` records: the number whose sample the job divides by.

    Raises:
        ConfigurationError: the model is an adapter of the silos' own.
    """
    job = trial.job
    size = max(1, round(trial.dp.normaliser / trial.dp.sample_rate))
    model = job.terms()
    adapter = adapter_of(job)
    scores = []
    try:
        vector = job.grid(silos, "additive")
        for repetition in range(repetitions):
            federation = Federation(
                RoundTerms(model, job.training_of(silos), trial.dp, vector),
                adapter,
                practice.silos(silos, size, repetition),
                job.rounds,
                algorithms=LINEAR if _is_linear(job) else ALGORITHMS,
            )
            trained = federation.train(job.first_model())
            logits = predict_scores(adapter, model, trained, practice.held_out.features)
            guessed = (logits > 0) if logits.ndim == 1 else logits.argmax(1)
            scores.append(float(np.mean(guessed == practice.held_out.labels)))
    except SealsumError as failure:
        return Outcome(trial, (), str(failure))
    return Outcome(trial, tuple(scores))


def _is_linear(job: JobFile) -> bool:
    """Whether its steps have a closed form: one layer, all of it trained, one row a record."""
    plain = job.training.local == LocalTerms() and job.compression is None
    return plain and job.model.adapter == "logistic" and job.model.base is None and job.data.views is None


def spelt(settings: Mapping[str, float]) -> str:
    """Settings as job.yaml would have them, for people."""
    return ", ".join(f"{path} {value:g}" for path, value in settings.items())


def _set(tree: dict[str, Any], path: str, value: float) -> None:
    *above, last = path.split(".")
    at: Any = tree
    for step in above:
        at = at.get(step) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        raise ConfigurationError(
            f"grid: expected a number's place in job.yaml, such as dp.clip_l2, got {path}"
        )
    at[last] = int(value) if float(value).is_integer() else value
