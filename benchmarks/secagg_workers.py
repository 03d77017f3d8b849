"""OpenFHE's processes in a measured round: one for each process that plays parties, and what they cost it.

A worker is started before its party is asked anything: agents and aggregators keep theirs between rounds.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from privacy.errors import ConfigurationError
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES, PARAMETERS
from privacy.secagg.threshold.worker import Worker, assert_available

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_started: dict[tuple[int, str], Worker] = {}
"""(process, row) → its worker; a forked process sees its parent's here and asks none of them."""


def openfhe_python() -> Path | None:
    """Where OpenFHE is looked for: here, else under ``OPENFHE_PYTHON``, else in ``.venv-openfhe``."""
    if importlib.util.find_spec("openfhe") is not None:
        return None
    beside = Path(__file__).parent.parent / ".venv-openfhe" / "bin" / "python"
    return Path(os.environ.get("OPENFHE_PYTHON", beside))


def runnable(schemes: Sequence[str]) -> list[str]:
    """Those that run here; a scheme under a joint key that does not is named on stderr, with the reason."""
    found = list(schemes)
    if not set(found) & set(JOINT_KEY_SCHEMES):
        return found
    try:
        assert_available(openfhe_python())
    except ConfigurationError as missing:
        for scheme in JOINT_KEY_SCHEMES:
            if scheme in found:
                print(f"{scheme}: skipped: {missing}", file=sys.stderr)
                found.remove(scheme)
    return found


def worker_of(row: str) -> Worker:
    """This process's worker for a row of parameters."""
    mine = (os.getpid(), row)
    if mine not in _started:
        _started[mine] = Worker(PARAMETERS[row], openfhe_python())
    return _started[mine]


def worker_cpu_s() -> float:
    """CPU time so far of this process's workers, all their threads (proc(5): utime and stime)."""
    return sum(_ticks(worker.process_id) for worker in _mine()) * _TICK_S


def worker_peak_mib() -> float:
    """Peak resident memory of this process's workers, whole: without the scheme there would be none."""
    return sum(_status_kib(worker.process_id, "VmHWM") for worker in _mine()) / 1024


def _mine() -> list[Worker]:
    return [worker for (process, _), worker in _started.items() if process == os.getpid()]


def _ticks(process: int) -> int:
    # The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def _status_kib(process: int, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
