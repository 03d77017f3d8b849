"""A trainer in this very process: what the worker runs, and the agent itself where there is no worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from privacy.canonical import Frozen
from privacy.errors import SealsumError
from privacy.ids import Name
from privacy.plan import JobSpec, RoundPlan
from privacy.sent import sent_in
from silo_agent.algorithms.catalogue import update_of
from silo_agent.algorithms.memory import Memory
from silo_agent.algorithms.task import Task
from silo_agent.checked_model import CheckedModel
from silo_agent.data.holdout import held_out
from silo_agent.data.records import Records
from silo_agent.datasets import Datasets
from silo_agent.engines.place import place_for
from silo_agent.engines.probe import assert_outputs
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ModelAdapter
from silo_agent.models.own import OwnAdapter
from silo_agent.personal.recall import recall_by_class
from silo_agent.personal.workplace import Workplace
from silo_agent.queries.question import Question, adapter_for
from silo_agent.settings import SiloSettings
from silo_agent.training.work import PaidWork, Recall, RoundModels, Trained, Work
from silo_agent.update import FloatUpdate, Update

_log = logging.getLogger(__name__)


class TrainingSettings(Frozen):
    """What of ``silo.yaml`` training needs: nothing of keys, servers, people or budgets."""

    device: str
    precision: Literal["float32", "bf16"]
    model_adapters: Mapping[Name, OwnAdapter]
    public_models: Mapping[Name, Path]
    cpu_threads: int
    pass_records: int | None


def training_settings(settings: SiloSettings) -> TrainingSettings:
    """The part of a silo's settings that its trainer is given."""
    return TrainingSettings(
        device=settings.device,
        precision=settings.precision,
        model_adapters=settings.model_adapters,
        public_models=settings.public_models,
        cpu_threads=settings.worker.cpu_threads,
        pass_records=settings.worker.pass_records,
    )


def trainer_here(settings: SiloSettings, stopping: threading.Event) -> TrainerHere:
    """A trainer in this process.

    Raises:
        ConfigurationError: as ``place_for``.
    """
    return TrainerHere(training_settings(settings), stopping)


@dataclass
class _Round:
    """One round's work, and what its steps have found so far."""

    work: Work
    adapter: ModelAdapter | None
    models: RoundModels | None = None
    records: Records | None = field(default=None, repr=False)


class TrainerHere:
    """As ``Trainer``. Records and the checked model are kept from round to round."""

    def __init__(self, settings: TrainingSettings, stopping: threading.Event) -> None:
        """
        Raises:
            ConfigurationError: as ``place_for``.
        """
        self._settings = settings
        self._stopping = stopping
        self.datasets = Datasets()
        place = place_for(settings.device, settings.precision, settings.cpu_threads)
        if settings.device == "auto":
            # Whoever asked for whatever there is, is told what that was.
            _log.info("trains_on", extra={"asked": settings.device, "place": str(place)})
        self._workbench = Workbench(place, settings.pass_records)
        self._round: _Round | None = None

    def begin(self, work: Work) -> None:
        """As ``Trainer``."""
        adapter = adapter_for(work.job, self._settings.model_adapters, self._settings.public_models)
        self._round = _Round(work, adapter)

    def check(self, models: RoundModels) -> str:
        """As ``Trainer``."""
        now = self._now
        now.models = models
        job, adapter = now.work.job, now.adapter
        if now.work.plan.dp is None or job.query is not None or adapter is None:
            return "autograd"
        engine = self._workbench.engine(adapter, job.model, models.start.vector)
        assert_outputs(engine.module, job.model.inputs, job.data.label.outputs)
        return self._workbench.engine_name

    def read(self) -> None:
        """As ``Trainer``."""
        work = self._now.work
        self._now.records = self.datasets.read(work.dataset, work.job, work.least)

    def train(self, paid: PaidWork, memory: Memory) -> Trained:
        """As ``Trainer``."""
        now = self._now
        if now.models is None or now.records is None or paid.work.plan.context != now.work.plan.context:
            raise SealsumError("training: expected a round whose model is checked and whose records are read")
        plan, job, start = now.work.plan, now.work.job, now.models.start
        first = None if now.models.first is None else now.models.first.vector
        update = update_of(
            Task(
                model=job.model,
                training=plan.training.at(plan.round),
                dp=plan.dp,
                vector=plan.vector,
                start=start.vector,
                adapter=now.adapter,
                records=now.records,
                stopping=self._stopping,
                question=_question(job, now.models.evaluated),
                norm_bound=None if plan.validity is None else plan.validity.norm_bound,
                further=plan.further,
                workbench=self._workbench,
                memory=memory,
                digest=start.digest,
                round=plan.round,
                sent=sent_in(plan.training, job.model, plan.job_digest, plan.round, start.vector, first),
            )
        )
        return Trained(update, weight_of(plan, now.records, update))

    def recall(self) -> Recall | None:
        """As ``Trainer``: on patients held out of the job, if it holds out any, and on all of them if not."""
        now = self._now
        if now.adapter is None or now.models is None:
            return None
        records = self.datasets.everybody(now.work.dataset, now.work.job)
        if share := now.work.job.training.holdout:
            records = records.only(np.flatnonzero(held_out(records.patients, share)))
        if records.kind != "classes" or len(records) == 0:
            return None
        return recall_by_class(Workplace(now.adapter, now.work.job.model, records), now.models.start.vector)

    def close(self) -> None:
        """As ``Trainer``."""
        self._round = None
        self.datasets = Datasets()

    @property
    def _now(self) -> _Round:
        if self._round is None:
            raise SealsumError("training: expected a round that has begun")
        return self._round


def weight_of(plan: RoundPlan, records: Records, update: Update) -> float:
    """ŵ in (0, 1]; a plan with DP has uniform weights, because counts would be released uncharged."""
    if plan.training.weights == "uniform":
        return 1.0
    if isinstance(update, FloatUpdate) and update.weight is not None:
        return update.weight
    return min(len(records), plan.training.weight_cap) / plan.training.weight_cap


def _question(job: JobSpec, evaluated: CheckedModel | None) -> Question | None:
    if job.query is None:
        return None
    return Question(job.query, job.data, None if evaluated is None else evaluated.vector)
