"""The one door to OpenFHE: a worker process under an interpreter that has it, and frames over its pipes.

OpenFHE's wheels fit CPython 3.10 or 3.12 and nothing between, so the interpreter is named by configuration
(``threshold_he.python``) or is this one. Always a process, also where ``import openfhe`` works here: what
crashes or hangs in C++ then ends a round by name and not the agent or the server. Keys go through the pipes
alone: never into argv, the environment, a file or a log.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.secagg.threshold.faults import BadSum, WorkerFailed
from privacy.secagg.threshold.parameters import ThresholdParameters
from privacy.secagg.threshold.polynomials import Polynomials

SCRIPT = Path(__file__).with_name("openfhe_worker.py")
_MAX_HEADER, _MAX_BLOBS, _MAX_BLOB = 1 << 16, 4, 1 << 28
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
"""One thread: OpenFHE's own threads wait by spinning and are eight times slower on a busy machine."""
_REMEDY = (
    "install openfhe and numpy for CPython 3.10 (glibc 2.35 or newer) or 3.12 (glibc 2.38), for example with "
    "'make threshold-he', and name that interpreter as threshold_he.python"
)


def assert_available(python: Path | None) -> str:
    """Ask once, when a policy or a configuration is loaded, whether that interpreter runs OpenFHE.

    Args:
        python: the interpreter, or ``None`` for this one.

    Returns:
        OpenFHE's version.

    Raises:
        ConfigurationError: there is no such interpreter, or openfhe does not import there.
    """
    with _Pipe(python, 60.0) as pipe:
        return pipe.version


class _Pipe:
    """A running worker process and the frames that go in and out of it. One request at a time."""

    def __init__(self, python: Path | None, limit_s: float) -> None:
        interpreter = Path(sys.executable) if python is None else python
        self._limit_s = limit_s
        try:
            self._process = subprocess.Popen(  # noqa: S603 (an interpreter that the operator names, our own script)
                [str(interpreter), "-I", "-B", str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_ENVIRONMENT,
            )
        except OSError as error:
            raise ConfigurationError(
                f"threshold_he.python: {interpreter} does not start ({error.strerror}); {_REMEDY}"
            ) from error
        try:
            hello, _ = self._answer()
        except WorkerFailed as error:
            self.close()
            raise ConfigurationError(
                f"threshold_he.python: {interpreter} does not run the worker (numpy missing?); {_REMEDY}"
            ) from error
        if "openfhe" not in hello:
            self.close()
            raise ConfigurationError(
                f"threshold_he.python: {interpreter} does not import openfhe: {hello.get('text')}; {_REMEDY}"
            )
        self.version = str(hello["openfhe"])

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it holds nothing worth keeping."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not written any more is not missed
                    stream.close()
        self._process.wait()

    @property
    def process_id(self) -> int:
        """Of the worker process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ask(self, header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """One request and its answer.

        Raises:
            WorkerFailed: the process is gone, or took longer than the limit and was ended.
        """
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 (opened as a pipe above)
        sizes = [len(blob) for blob in blobs]
        head = json.dumps({**header, "sizes": sizes}, sort_keys=True, separators=(",", ":")).encode()
        timer = threading.Timer(self._limit_s, self._process.kill)
        timer.start()
        try:
            for piece in (len(head).to_bytes(4, "big"), head, *blobs):
                stdin.write(piece)
            stdin.flush()
            return self._frame()
        except (OSError, ValueError) as error:
            raise self._failed() from error
        finally:
            timer.cancel()

    def _answer(self) -> tuple[dict[str, Any], list[bytes]]:
        timer = threading.Timer(self._limit_s, self._process.kill)
        timer.start()
        try:
            return self._frame()
        finally:
            timer.cancel()

    def _frame(self) -> tuple[dict[str, Any], list[bytes]]:
        size = int.from_bytes(self._exactly(4), "big")
        if size > _MAX_HEADER:
            raise self._failed()
        try:
            header = dict(json.loads(self._exactly(size)))
            sizes = [int(each) for each in header.pop("sizes")]
        except (ValueError, TypeError, KeyError) as error:
            raise self._failed() from error
        if len(sizes) > _MAX_BLOBS or not all(0 <= each <= _MAX_BLOB for each in sizes):
            raise self._failed()
        return header, [self._exactly(each) for each in sizes]

    def _exactly(self, size: int) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 (opened as a pipe above)
        raw = stdout.read(size)
        if len(raw) != size:
            raise self._failed()
        return raw

    def _failed(self) -> WorkerFailed:
        return WorkerFailed(
            f"threshold_he worker {self._process.pid}: it ended, or did not answer within "
            f"{self._limit_s:g} s; this round ends, start another one"
        )


class Worker:
    """OpenFHE under one row of parameters, as a context manager. Keeps no key between calls."""

    def __init__(
        self, parameters: ThresholdParameters, python: Path | None = None, limit_s: float = 600.0
    ) -> None:
        """Start the process and let OpenFHE judge the row.

        Args:
            python: ``threshold_he.python``, or ``None`` for this interpreter.
            limit_s: longest that one call may take before the process is ended.

        Raises:
            ConfigurationError: as ``assert_available``. WorkerFailed: OpenFHE refuses the row.
        """
        self._parameters = parameters
        self._pipe = _Pipe(python, limit_s)
        try:
            self._ask("open", [], [])
        except WorkerFailed:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()

    @property
    def process_id(self) -> int:
        """Of the worker process, for logs."""
        return self._pipe.process_id

    @property
    def is_alive(self) -> bool:
        """Whether the process runs still."""
        return self._pipe.is_alive

    def keygen(self, common: Polynomials) -> tuple[Polynomials, Polynomials]:
        """A fresh (secret share, public share) over the common a, each uint64[1, towers, degree]."""
        secret, public = self._ask("keygen", [common], [1, 1])
        return secret, public

    def encrypt(self, joint: Polynomials, common: Polynomials, blocks: NDArray[np.int64]) -> Polynomials:
        """A fresh ciphertext of each block, int64[count, degree] → uint64[2·count, …], c0 and c1 in turn."""
        (sealed,) = self._ask("encrypt", [joint, common, blocks], [2 * len(blocks)])
        return sealed

    def partial(self, secret: Polynomials, masks: Polynomials) -> Polynomials:
        """c1·s + flooding noise for each c1, uint64[count, towers, degree]."""
        (answers,) = self._ask("partial", [secret, masks], [len(masks)])
        return answers

    def fuse(self, fused: Polynomials) -> NDArray[np.int64]:
        """What c0 + Σ partial decryptions say, int64[count, degree]; CKKS rounded to integers in the worker.

        Raises:
            BadSum: CKKS: it is off the grid.
        """
        header, blobs = self._request("fuse", [fused])
        if header.get("text") == "off-grid":
            raise BadSum("sum: it does not decrypt to integers; a partial decryption of it is wrong")
        self._judge(header)
        size = 8 * len(fused) * self._parameters.degree
        if len(blobs) != 1 or len(blobs[0]) != size:
            raise WorkerFailed("threshold_he worker: fuse: expected one array of integers; the round ends")
        return np.frombuffer(blobs[0], dtype="<i8").reshape(len(fused), self._parameters.degree)

    def _ask(self, operation: str, arrays: list[NDArray[Any]], counts: list[int]) -> list[Polynomials]:
        """An operation whose answers are so many polynomials each."""
        header, blobs = self._request(operation, arrays)
        self._judge(header)
        shape = (len(self._parameters.moduli), self._parameters.degree)
        sizes = [8 * count * shape[0] * shape[1] for count in counts]
        if [len(blob) for blob in blobs] != sizes:
            raise WorkerFailed(
                f"threshold_he worker: {operation}: expected arrays of other sizes; the round ends"
            )
        return [
            np.frombuffer(blob, dtype="<u8").reshape(count, *shape)
            for blob, count in zip(blobs, counts, strict=True)
        ]

    def _request(self, operation: str, arrays: list[NDArray[Any]]) -> tuple[dict[str, Any], list[bytes]]:
        request = {"op": operation, "row": self._parameters.as_request}
        return self._pipe.ask(
            request, [array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays]
        )

    def _judge(self, header: dict[str, Any]) -> None:
        if "ok" not in header:
            raise WorkerFailed(
                f"threshold_he worker: {header.get('error')}: {header.get('text')} "
                f"({self._parameters.name}, openfhe {self._pipe.version}); the round ends"
            )
