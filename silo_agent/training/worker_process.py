"""A worker process as the agent holds it: start it confined, ask, wait, end it. Knows no rounds."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from privacy.errors import MalformedMessage, SealsumError
from silo_agent.problems import OutOfMemory, Stopped, WorkerLost
from silo_agent.training.carried import OUT_OF_MEMORY, STARVED, error_of
from silo_agent.training.frames import Closed, Frame, receive_frame, send_frame
from silo_agent.worker_settings import WorkerSettings

_CONFINE: Final = Path(__file__).with_name("confine.py")
_CHILD: Final = "silo_agent.training.child"
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "CUDA_VISIBLE_DEVICES")
"""Of the agent's environment; the rest, in which secrets may be, stays with it."""
_LOOK_S: Final = 0.2
"""How often an order to stop is looked for while the worker works."""
_GRACE_S: Final = 10.0
"""How long a step may go on after an order to stop; within the 30 s that the agent has itself."""
_SMALL: Final = 1 << 20


class WorkerProcess:
    """Runs from the beginning; one request at a time."""

    def __init__(self, settings: WorkerSettings, hidden: Sequence[Path]) -> None:
        """Start it, and hear what it has given up; Python and torch load while the agent goes on.

        Args:
            hidden: files and directories that it must not see.

        Raises:
            WorkerLost: it does not start.
        """
        command = [sys.executable, "-m", _CHILD]
        self._wire, self._process = _spawned(settings, hidden, command)
        self.why_not_confined = _confined(self._wire, self._process)
        """Empty, or why it has a network and sees what was to be hidden."""

    @property
    def process_id(self) -> int:
        """For the log."""
        return self._process.pid

    def tell(self, frame: Frame) -> None:
        """Send what is not answered.

        Raises:
            WorkerLost: it has ended.
        """
        try:
            send_frame(self._wire, frame)
        except Closed:
            raise self._lost() from None

    def ask(self, request: Frame, stopping: threading.Event, most: int = _SMALL) -> Frame:
        """One request and its answer, however long it takes.

        Args:
            stopping: set when the agent is told to end; the worker then ends its step, or is ended.
            most: bytes of arrays that the answer may have.

        Raises:
            SealsumError: what the worker raised. WorkerLost: it has ended, or answers nonsense and was ended.
            Stopped: it went on for too long after the order to stop, and was ended.
        """
        self.tell(request)
        until: float | None = None
        while not select.select([self._wire], [], [], _LOOK_S)[0]:
            if until is None and stopping.is_set():
                self.tell(Frame("stop"))
                until = time.monotonic() + _GRACE_S
            if until is not None and time.monotonic() > until:
                self.close()
                raise Stopped(
                    "training: the agent was told to end; the worker was ended in the middle of a step"
                )
        return self._answer(most)

    def close(self) -> None:
        """End it, whatever it does."""
        self._wire.close()
        self._process.kill()
        self._process.wait()

    def _answer(self, most: int) -> Frame:
        try:
            answer = receive_frame(self._wire, most)
            if answer.kind == "done":
                return answer
            told: SealsumError = error_of(answer)
        except Closed:
            raise self._lost() from None
        except MalformedMessage as error:
            self.close()
            raise WorkerLost(f"{error}; it was ended, and the next round starts another") from error
        raise told

    def _lost(self) -> WorkerLost | OutOfMemory:
        return _lost(self._process)


def look_at_confinement(settings: WorkerSettings, hidden: Sequence[Path]) -> str:
    """Whether a worker could be confined here: empty, or why not. Starts no worker.

    Raises:
        WorkerLost: the process that tries does not start, as with limits that this system does not grant.
    """
    wire, process = _spawned(settings, hidden, [])
    with wire:
        told = _confined(wire, process)
    process.wait()
    return told


def _spawned(
    settings: WorkerSettings, hidden: Sequence[Path], command: list[str]
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with theirs:
        number = str(theirs.fileno())
        asked = {
            "parent": os.getpid(),
            "hidden": [str(path) for path in hidden],
            "memory_mib": settings.memory_mib,
            "cpu_seconds": settings.cpu_seconds,
            "nice": settings.nice,
            "command": [*command, number] if command else [],
        }
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        paths = os.pathsep.join(str(Path(path or ".").resolve()) for path in sys.path)
        threads = str(settings.cpu_threads)
        process = subprocess.Popen(  # noqa: S603 (this interpreter, our own script)
            [sys.executable, "-I", "-S", "-B", str(_CONFINE), number, json.dumps(asked)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={**kept, "PYTHONPATH": paths, "OMP_NUM_THREADS": threads, "PYTHONDONTWRITEBYTECODE": "1"},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return ours, process


def _confined(wire: socket.socket, process: subprocess.Popen[bytes]) -> str:
    try:
        said = receive_frame(wire, _SMALL)
    except Closed:
        raise _lost(process) from None
    except MalformedMessage:
        process.kill()
        raise
    return str(said.fields.get("why_not", "it did not say"))


def _lost(process: subprocess.Popen[bytes]) -> WorkerLost | OutOfMemory:
    code = process.wait()
    if code == STARVED:
        return OutOfMemory(OUT_OF_MEMORY)
    how = {
        -signal.SIGKILL: "was killed (SIGKILL): by somebody, or because this machine's memory ran out",
        -signal.SIGXCPU: "used up worker.cpu_seconds: raise it, or leave the job",
    }.get(code, f"ended ({f'signal {-code}' if code < 0 else f'exit code {code}'}): its last words are above")
    return WorkerLost(f"worker: process {process.pid} {how}; the next round starts another")
