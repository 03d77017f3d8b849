"""The worker: one agent's requests over an inherited socket, answered in order, until the agent is gone.

It is given public terms, models, and where records lie; it has no keys, no ledger and, confined, no network.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from privacy.errors import SealsumError
from privacy.ids import Digest
from privacy.plan import JobSpec, RoundPlan
from silo_agent.algorithms.memory import Memory
from silo_agent.checked_model import CheckedModel
from silo_agent.json_log import log_to_stderr
from silo_agent.problems import OutOfMemory
from silo_agent.settings import DatasetSettings
from silo_agent.training.carried import OUT_OF_MEMORY, STARVED, frame_of_error, frame_of_trained, records_of
from silo_agent.training.frames import Closed, Frame, receive_frame, send_frame
from silo_agent.training.here import TrainerHere, TrainingSettings
from silo_agent.training.work import PaidWork, RoundModels, Work

_MOST: Final = 1 << 40
"""Bytes of arrays: what the agent sends is not bounded here, for the agent is whom this process serves."""
_ALLOCATION: Final = ("allocate memory", "out of memory", "bad_alloc")
"""How torch says in a ``RuntimeError`` that memory is short."""


def main() -> None:
    """Serve the agent at the socket ``argv[1]``."""
    wire = socket.socket(fileno=int(sys.argv[1]))
    requests: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    stopping = threading.Event()
    threading.Thread(target=_listen, args=(wire, requests, stopping), daemon=True).start()
    settings = requests.get()
    log_to_stderr(settings.fields["log_level"])
    served = _Served(TrainingSettings.model_validate_json(settings.fields["settings"]), stopping)
    while True:
        send_frame(wire, _answer(served, requests.get()))


def _listen(wire: socket.socket, requests: queue.SimpleQueue[Frame], stopping: threading.Event) -> None:
    """Queue what comes; an order to stop is heard in the middle of a step, and so is the agent's end."""
    try:
        while True:
            frame = receive_frame(wire, _MOST)
            if frame.kind == "stop":
                stopping.set()
            else:
                requests.put(frame)
    except Closed:
        os._exit(0)  # whatever is being computed is nobody's any more
    except MemoryError:
        os._exit(STARVED)  # an answer would wait behind a request that the agent is still sending


def _answer(served: _Served, request: Frame) -> Frame:
    try:
        return _STEPS[request.kind](served, request)
    except SealsumError as error:
        return frame_of_error(error)
    except MemoryError:
        return frame_of_error(OutOfMemory(OUT_OF_MEMORY))
    except RuntimeError as error:
        if not any(words in str(error) for words in _ALLOCATION):
            raise
        return frame_of_error(OutOfMemory(OUT_OF_MEMORY))


class _Served:
    """The trainer, and the one job that this process works for."""

    def __init__(self, settings: TrainingSettings, stopping: threading.Event) -> None:
        self._settings = settings
        self._stopping = stopping
        self._trainer: TrainerHere | None = None
        self._job: JobSpec | None = None
        self._work: Work | None = None

    @property
    def trainer(self) -> TrainerHere:
        """Made when it is first asked for, so that a device that is not there is an answer."""
        if self._trainer is None:
            self._trainer = TrainerHere(self._settings, self._stopping)
        return self._trainer

    @property
    def work(self) -> Work:
        """Of the round that has begun."""
        if self._work is None:
            raise SealsumError("worker: expected a round that has begun")
        return self._work

    def begin(self, request: Frame) -> Frame:
        fields = request.fields
        if fields["job"] is not None:
            self._job = JobSpec.model_validate_json(fields["job"])
        if self._job is None:
            raise SealsumError("worker: expected a job with its first round")
        self._work = Work(
            job=self._job,
            plan=RoundPlan.model_validate_json(fields["plan"]),
            dataset=DatasetSettings.model_validate_json(fields["dataset"]),
            least=fields["least"],
        )
        self.trainer.begin(self._work)
        return Frame("done")

    def check(self, request: Frame) -> Frame:
        sent = {
            name: CheckedModel(Digest(digest), request.arrays[name])
            for name, digest in request.fields.items()
        }
        models = RoundModels(sent["start"], sent.get("evaluated"), sent.get("first"))
        return Frame("done", {"engine": self.trainer.check(models)})

    def records(self, request: Frame) -> Frame:
        self.trainer.datasets.hand(self.work.dataset, self.work.job, records_of(request))
        return Frame("done")

    def read(self, _request: Frame) -> Frame:
        self.trainer.read()
        return Frame("done")

    def train(self, request: Frame) -> Frame:
        fields = request.fields
        out = fields["model_out"]
        memory = Memory(request.arrays, fields["round"], None if out is None else Digest(out))
        # The agent has seen that the round is paid for before it asks.
        return frame_of_trained(self.trainer.train(PaidWork(self.work), memory))

    def recall(self, _request: Frame) -> Frame:
        recall: Any = self.trainer.recall()
        return Frame("done", {"recall": recall})


_STEPS: Final[Mapping[str, Callable[[_Served, Frame], Frame]]] = MappingProxyType(
    {
        "begin": _Served.begin,
        "check": _Served.check,
        "records": _Served.records,
        "read": _Served.read,
        "train": _Served.train,
        "recall": _Served.recall,
    }
)

if __name__ == "__main__":
    main()
