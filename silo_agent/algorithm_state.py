"""What algorithms remember at this silo, on disk, across rounds, restarts and drop-outs; deleted after a job.

    algorithms/<job digest>/<ctx>.staged          of a round whose result is not in yet
    algorithms/<job digest>/<round>-<model>.kept  of the last round that counted, and the model it ended in
    algorithms/<job digest>/first                 raw bytes of the job's first model, where rounds need it
    algorithms/<job digest>/job                   the job's name, so that its end can be asked for
    algorithms/<job digest>/ended                 the day from which on the job's files may go

Files are safetensors of float32 behind the SHA-256 of their bytes, mode 0600. They never leave the silo,
and say about its records what its updates say before they are summed: whoever reads the disk reads that.
Knows no algorithm and no network.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from privacy.errors import SealsumError
from privacy.ids import Context, Digest, JobId
from privacy.keystore import read_secret
from privacy.plan import RoundPlan
from privacy.wire.messages import RoundResult
from silo_agent.algorithms.memory import FIRST, Arrays, Memory
from silo_agent.durable import private_directory, sync_directory, write_durably

DAYS_KEPT: Final = 30
"""After a job's end: a personal model may still be wanted, but not forever."""
_KEPT = re.compile(r"([0-9]{9})-([0-9a-f]{64})\.kept")
_JOB, _ENDED, _FIRST = "job", "ended", "first"
_DIGEST_BYTES = 32


class AlgorithmState:
    """The memories of one silo's jobs."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / "algorithms"

    def memory(self, job: Digest) -> Memory:
        """What is remembered of a job; nothing before its first round.

        Raises:
            SealsumError: it does not read back: going on without it would be another algorithm.
        """
        kept = self._kept(job)
        if kept is None:
            return FIRST
        path, number, model_out = kept
        return Memory(_read(path), number, model_out)

    def stage(self, plan: RoundPlan, keep: Arrays) -> None:
        """Write what this round is to be remembered by, durably, before anything of the round leaves."""
        if not keep:
            return
        self._of_job(plan)
        _write(self._staged(plan), keep)

    def first_model(self, plan: RoundPlan) -> bytes | None:
        """The raw bytes of the job's first model, not checked; ``None`` where they have not been kept."""
        path = self._directory / plan.job_digest / _FIRST
        return read_secret(path) if path.exists() else None

    def keep_first_model(self, plan: RoundPlan, raw: bytes) -> None:
        """Keep it as long as what the job's algorithm remembers."""
        write_durably(self._of_job(plan) / _FIRST, raw)

    def staged(self, plan: RoundPlan) -> Arrays | None:
        """What a round has staged; ``None`` where it has nothing."""
        path = self._staged(plan)
        return _read(path) if path.exists() else None

    def commit(self, plan: RoundPlan, result: RoundResult, survived: bool, settled: Arrays | None) -> None:
        """Remember the round if it counts, durably, or drop what it staged; asked twice, it is done once.

        Args:
            survived: whether the result's survivors name this silo.
            settled: what to remember in the place of what was staged, where the result completes it.
        """
        staged = self._staged(plan)
        if not staged.exists():
            return
        if survived and result.model_out is not None and result.model_in == plan.model:
            before = self._kept(plan.job_digest)
            path = staged.with_name(f"{plan.round:09d}-{result.model_out}.kept")
            if settled is None:
                staged.replace(path)
                sync_directory(path.parent)
            else:
                _write(path, settled)
            if before is not None and before[0] != path:
                before[0].unlink()
        staged.unlink(missing_ok=True)

    def drop(self, context: Context) -> None:
        """Forget what a round staged that no result will ever name."""
        for path in self._directory.glob(f"*/{context}.staged"):
            path.unlink()

    def job_ended(self, job: Digest, today: date) -> None:
        """From now on the job's files are kept for ``DAYS_KEPT`` days."""
        directory = self._directory / job
        if directory.is_dir() and not (directory / _ENDED).exists():
            write_durably(directory / _ENDED, (today + timedelta(days=DAYS_KEPT)).isoformat().encode())

    def purge(self, today: date) -> tuple[Digest, ...]:
        """Delete what belongs to jobs that ended long enough ago; returns these jobs."""
        due = [path for path in self._directory.glob(f"*/{_ENDED}") if _day(path) <= today]
        for path in due:
            shutil.rmtree(path.parent)
        return tuple(Digest(path.parent.name) for path in due)

    def running(self) -> dict[Digest, JobId]:
        """Jobs that have files here and are not marked as ended: digest → name."""
        return {
            Digest(path.parent.name): JobId(path.read_text("ascii"))
            for path in sorted(self._directory.glob(f"*/{_JOB}"))
            if not path.with_name(_ENDED).exists()
        }

    def _of_job(self, plan: RoundPlan) -> Path:
        """The job's directory, with its name in it."""
        private_directory(self._directory)
        directory = private_directory(self._directory / plan.job_digest)
        if not (directory / _JOB).exists():
            write_durably(directory / _JOB, plan.job.encode())
        return directory

    def _staged(self, plan: RoundPlan) -> Path:
        return self._directory / plan.job_digest / f"{plan.context}.staged"

    def _kept(self, job: Digest) -> tuple[Path, int, Digest] | None:
        """The latest: a crash between a new file's name and the old one's end leaves two."""
        found = [
            (path, int(match[1]), Digest(match[2]))
            for path in (self._directory / job).glob("*.kept")
            if (match := _KEPT.fullmatch(path.name)) is not None
        ]
        return max(found, key=lambda one: one[1], default=None)


def _write(path: Path, arrays: Arrays) -> None:
    raw = save({name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()})
    write_durably(path, hashlib.sha256(raw).digest() + raw)


def _read(path: Path) -> Arrays:
    raw = read_secret(path)
    digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise SealsumError(
            f"{path}: it does not read back; restore it, or remove the job's folder to begin anew"
        )
    try:
        return load(body)
    except (SafetensorError, ValueError) as error:
        raise SealsumError(f"{path}: expected safetensors; remove the job's folder to begin anew") from error


def _day(path: Path) -> date:
    try:
        return date.fromisoformat(path.read_text("ascii"))
    except ValueError as error:
        raise SealsumError(f"{path}: expected a day such as 2026-01-31; remove the job's folder") from error
