"""Child processes of the demo: started apart, awaited by their own words, and always ended.

Each child has its own session and one log file; the demo's own exit, by whatever way, ends them all
(SIGTERM, after ten seconds SIGKILL; if the demo is killed outright, ``watchdog`` does it).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from privacy.errors import SealsumError
from sealsum.demo import watchdog
from sealsum.demo.logs import LogReader, last_error
from sealsum.demo.watchdog import GRACE_S, alive, signal_group

_LOOK_S = 0.02
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Eight processes share one machine; more threads each only get in each other's way."""


class ChildFailed(SealsumError):
    """A child process ended, or did not get ready; carries its last error and where its log is."""


@dataclass(frozen=True)
class Child:
    """A running child process and the file it writes to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    may_end_with: tuple[int, ...] = ()
    """Exit codes with which it may end by itself while the others go on."""

    def failed(self, what: str) -> ChildFailed:
        """The error that says what went wrong, in the child's own words."""
        return ChildFailed(f"{self.name}: {what}: {last_error(self.log)}\n  its log: {self.log}")


class Supervisor:
    """Starts children, and ends every one of them when its ``with`` block is left."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own script, no input from outside
            [sys.executable, "-I", watchdog.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(self._children)
        if self._watchdog is not None:
            self._pipe.close()
            self._watchdog.wait(timeout=2 * GRACE_S)

    def start(
        self,
        name: str,
        command: Sequence[str],
        stdout: Path | None = None,
        may_end_with: tuple[int, ...] = (),
    ) -> Child:
        """Start a child; what it prints goes to ``logs/<name>.log``, or its stdout to a file of its own."""
        log = self._logs / f"{name}.log"
        with log.open("ab") as errors, (stdout or log).open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - an argument list that the demo builds itself
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **_ONE_THREAD},
            )
        child = Child(name, process, log, may_end_with)
        self._children.append(child)
        self._tell(f"+{process.pid}\n")
        return child

    def wait_for(self, child: Child, event: str, timeout_s: float) -> dict[str, Any]:
        """Wait until a child logs ``event``, and return that log entry.

        Raises:
            ChildFailed: it ended first, or did not say so in time.
        """
        reader = LogReader(child.log)
        deadline = time.monotonic() + timeout_s
        while True:
            ended = child.process.poll() is not None
            for entry in reader.new_events():
                if entry.get("event") == event:
                    return entry
            if ended:
                raise child.failed(f"ended with exit code {child.process.returncode} before it was ready")
            if time.monotonic() > deadline:
                raise child.failed(f"expected to be ready within {timeout_s:.0f} s")
            time.sleep(_LOOK_S)

    def finish(self, child: Child, timeout_s: float, accept: Sequence[int] = (0,)) -> int:
        """Wait for a child to end by itself and return its exit code.

        Raises:
            ChildFailed: an exit code other than those accepted, or no end in time.
        """
        try:
            code = child.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise child.failed(f"expected to end within {timeout_s:.0f} s") from error
        self._forget(child)
        if code not in accept:
            raise child.failed(f"ended with exit code {code}")
        return code

    def kill(self, child: Child) -> None:
        """End a child and whatever it started at once (SIGKILL), as a power cut does."""
        signal_group(child.process.pid, signal.SIGKILL)
        child.process.wait()
        self._forget(child)

    def check(self) -> None:
        """Look whether every child that is needed is running.

        Raises:
            ChildFailed: one has ended.
        """
        for child in self._children:
            code = child.process.poll()
            if code is not None and code not in child.may_end_with:
                raise child.failed(f"ended with exit code {code} while it was needed")

    def stop(self, children: Sequence[Child]) -> None:
        """End children and whatever they started: SIGTERM to each group, after ten seconds SIGKILL."""
        ending = list(children)
        for child in ending:
            signal_group(child.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for child in ending:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
        for child in ending:
            if alive(child.process.pid):
                signal_group(child.process.pid, signal.SIGKILL)
            child.process.wait()
            self._forget(child)

    def _forget(self, child: Child) -> None:
        if child in self._children:
            self._children.remove(child)
            self._tell(f"-{child.process.pid}\n")

    def _tell(self, line: str) -> None:
        self._pipe.write(line.encode())
        self._pipe.flush()

    @property
    def _pipe(self) -> IO[bytes]:
        if self._watchdog is None or self._watchdog.stdin is None:
            raise SealsumError(
                "supervisor: expected to be entered (with Supervisor(…)) before it starts children"
            )
        return self._watchdog.stdin
