"""One OpenFHE process, kept as long as a party has use for it: to start one takes seconds of computation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privacy.secagg.threshold.faults import WorkerFailed
from privacy.secagg.threshold.parameters import ThresholdParameters
from privacy.secagg.threshold.worker import Worker


class OpenFhe:
    """Hands out the one worker, in one thread at a time. A worker keeps no key between calls."""

    def __init__(self, python: Path | None = None) -> None:
        """``python``: ``threshold_he.python``, or ``None`` for this interpreter. Nothing is started yet."""
        self._python = python
        self._running: tuple[ThresholdParameters, Worker] | None = None

    @contextmanager
    def worker(self, parameters: ThresholdParameters) -> Iterator[Worker]:
        """The worker under a row of parameters; a new one where the last died or was for another row.

        Raises:
            ConfigurationError: no OpenFHE runs under that interpreter. WorkerFailed: it refuses the row.
        """
        if self._running is None or self._running[0] != parameters or not self._running[1].is_alive:
            self.close()
            self._running = (parameters, Worker(parameters, self._python))
        try:
            yield self._running[1]
        except WorkerFailed:
            self.close()
            raise

    def close(self) -> None:
        """End the process, if there is one."""
        if self._running is not None:
            self._running[1].close()
            self._running = None
