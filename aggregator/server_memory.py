"""What an optimiser remembers from round to round, on disk beside the model it belongs to.

    <state>/optimizers/<job digest>/<model digest>/momentum, second, average: raw float64[d]; averaged: number

A memory is named by the model that came out with it: after a crash a round finds the one that its own model
has, or computes both again. Read and written in stretches, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from aggregator.blob_store import Blobs, Draft
from aggregator.server_step import Moment, Reals, first_slots, slots_of
from privacy.errors import Unprocessable
from privacy.ids import Digest
from privacy.plan import RoundPlan

_COUNT = "averaged"
_REAL_BYTES = 8


class RoundMemory:
    """One round's: what was remembered, and what will be."""

    def __init__(
        self, plan: RoundPlan, averaged: int, directory: Blobs, fresh: bool, drafts: Mapping[str, Draft]
    ) -> None:
        self.moment = Moment(plan.round, plan.rounds, averaged)
        self._plan = plan
        self._server = plan.training.server
        self._directory = directory
        self._fresh = fresh
        self._drafts = drafts

    def read(self, start: int, model: NDArray[np.float32]) -> dict[str, Reals]:
        """Slots of the stretch from ``start`` on that ``model``, float32[m] of the round's model, covers."""
        if self._fresh:
            return first_slots(model, self._server)
        return {
            name: np.frombuffer(self._stretch(name, start, len(model)), "<f8")
            for name in slots_of(self._server)
        }

    def _stretch(self, name: str, start: int, length: int) -> bytes:
        where = (self._plan.job_digest, self._plan.model, name)
        return self._directory.read_range(_REAL_BYTES * start, _REAL_BYTES * length, *where)

    def write(self, slots: Mapping[str, Reals]) -> None:
        """Append the next stretch."""
        for name, values in slots.items():
            self._drafts[name].write(values.astype("<f8", copy=False).tobytes())

    def keep(self, model: Digest) -> None:
        """Make durable what was written, under the model that came out; nothing, where there is nothing."""
        if not self._drafts:
            return
        for name, draft in self._drafts.items():
            draft.commit(self._plan.job_digest, model, name)
        with self._directory.draft() as count:
            count.write(str(self.moment.averaged + int(self.moment.in_tail(self._server))).encode())
            count.commit(self._plan.job_digest, model, _COUNT)


class ServerMemory:
    """The memories of an aggregator's running jobs."""

    def __init__(self, directory: Blobs) -> None:
        self._directory = directory

    @contextmanager
    def of_round(self, plan: RoundPlan, first: Digest) -> Iterator[RoundMemory]:
        """The memory of a round. Only one that starts from ``first``, the job's initial model, may find none.

        Raises:
            Unprocessable: what should be there is not.
        """
        names, fresh = slots_of(plan.training.server), plan.model == first
        averaged = 0
        if names and not fresh:
            where = (plan.job_digest, plan.model)
            if not all(self._directory.exists(*where, name) for name in (*names, _COUNT)):
                raise Unprocessable(
                    f"job {plan.job}: what its optimiser remembers of the last round is gone from "
                    f"optimizers/{'/'.join(where)}; restore the aggregator's state, or submit the job anew"
                )
            averaged = int(self._directory.read(*where, _COUNT))
        with ExitStack() as stack:
            drafts = {name: stack.enter_context(self._directory.draft()) for name in names}
            yield RoundMemory(plan, averaged, self._directory, fresh, drafts)

    def forget(self, job: Digest, model: Digest) -> None:
        """Delete what belongs to a model that no round will start from again."""
        self._directory.scrub(job, model)

    def forget_job(self, job: Digest) -> None:
        """Delete all of a job's."""
        self._directory.scrub(job)

    def jobs(self) -> list[Digest]:
        """The jobs of which something is kept."""
        return [Digest(name) for name in self._directory.names()]
