"""A trainer in a process of its own, one process a job: this end sends terms and models, and no key.

A database is read here, for the worker has neither a network nor the password; everything else is read there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import Digest
from privacy.keystore import Identity
from silo_agent.algorithms.memory import Memory
from silo_agent.datasets import read_for
from silo_agent.problems import OutOfMemory, WorkerLost
from silo_agent.settings import SiloSettings
from silo_agent.training.carried import frame_of_records, most_bytes, trained_of
from silo_agent.training.frames import Frame
from silo_agent.training.here import trainer_here, training_settings
from silo_agent.training.hidden import hidden_from_worker
from silo_agent.training.work import PaidWork, Recall, RoundModels, Trained, Trainer, TrainerOf, Work
from silo_agent.training.worker_process import WorkerProcess

_log = logging.getLogger(__name__)


def trainer_for(identity: Identity) -> TrainerOf:
    """How the agent of this identity trains: as its settings say."""

    def made(settings: SiloSettings, stopping: threading.Event) -> Trainer:
        if not settings.worker.process:
            return trainer_here(settings, stopping)
        return TrainerApart(settings, hidden_from_worker(settings, identity), stopping)

    return made


class TrainerApart:
    """As ``Trainer``. A worker is started at once, and anew for each further job, and after it was lost."""

    def __init__(self, settings: SiloSettings, hidden: Sequence[Path], stopping: threading.Event) -> None:
        """
        Raises:
            ConfigurationError: the network cannot be taken from it, and the settings require it.
            WorkerLost: it does not start.
        """
        self._settings = settings
        self._hidden = hidden
        self._stopping = stopping
        self._work: Work | None = None
        self._worker: WorkerProcess | None = self._started()
        self._job: Digest | None = None
        self._handed = False

    def begin(self, work: Work) -> None:
        """As ``Trainer``."""
        self._work = work
        job = work.job.digest
        if self._worker is None or self._job not in (None, job):
            self._end()
            self._worker = self._started()
        new = self._job is None
        dataset = work.dataset
        if dataset.sql is not None:
            dataset = dataset.model_copy(update={"sql": dataset.sql.model_copy(update={"password": None})})
        fields = {
            "job": canonical_bytes(work.job).decode() if new else None,
            "plan": canonical_bytes(work.plan).decode(),
            "dataset": dataset.model_dump_json(),
            "least": work.least,
        }
        self._ask(Frame("begin", fields))
        self._job = job

    def check(self, models: RoundModels) -> str:
        """As ``Trainer``."""
        sent = {"start": models.start, "evaluated": models.evaluated, "first": models.first}
        there = {name: model for name, model in sent.items() if model is not None}
        fields = {name: model.digest for name, model in there.items()}
        arrays = {name: model.vector for name, model in there.items()}
        return str(self._ask(Frame("check", fields, arrays)).fields["engine"])

    def read(self) -> None:
        """As ``Trainer``."""
        work = self._now
        if work.dataset.sql is not None and not self._handed:
            self._ask(frame_of_records(read_for(work.dataset, work.job)))
            self._handed = True
        self._ask(Frame("read"))

    def train(self, paid: PaidWork, memory: Memory) -> Trained:
        """As ``Trainer``."""
        if paid.work is not self._work:
            raise SealsumError("training: expected the round that has begun")
        fields = {"round": memory.round, "model_out": memory.model_out}
        return trained_of(self._ask(Frame("train", fields, memory.arrays), most_bytes(paid.work.plan)))

    def recall(self) -> Recall | None:
        """As ``Trainer``."""
        recall = self._ask(Frame("recall")).fields["recall"]
        return None if recall is None else tuple(recall)

    def close(self) -> None:
        """As ``Trainer``: with the process go the records."""
        self._end()

    @property
    def _now(self) -> Work:
        if self._work is None:
            raise SealsumError("training: expected a round that has begun")
        return self._work

    def _ask(self, request: Frame, most: int = 1 << 20) -> Frame:
        if self._worker is None:
            raise WorkerLost("worker: it is gone; the next round starts another")
        try:
            return self._worker.ask(request, self._stopping, most)
        except (WorkerLost, OutOfMemory) as error:
            # After a want of memory nobody knows what a library has left behind.
            _log.error("worker_lost", extra={"reason": str(error)})
            self._end()
            raise

    def _started(self) -> WorkerProcess:
        wanted = self._settings.worker
        worker = WorkerProcess(wanted, self._hidden)
        why_not = worker.why_not_confined
        if why_not and wanted.network == "required":
            worker.close()
            raise ConfigurationError(
                f"worker.network: expected a worker without a network, and it cannot be taken from it here: "
                f"{why_not}; allow unprivileged user namespaces to the agent, or write worker: {{network: "
                "best_effort}"
            )
        _log.info("worker_started", extra={"pid": worker.process_id})
        if why_not:
            _log.warning("worker_has_network", extra={"pid": worker.process_id, "reason": why_not})
        told = training_settings(self._settings).model_dump_json()
        worker.tell(Frame("settings", {"settings": told, "log_level": self._settings.log_level}))
        return worker

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker, self._job, self._handed = None, None, False
