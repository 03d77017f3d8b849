"""The only module that makes a model of a sum: from cleared evidence and a scheme's sum to the next model.

Works part by part, so memory is bounded by parts, not by the cohort or the model.
What it opens is one value: the sum of the survivors' ``[ŵ·Δ, ŵ]``; nothing of a single silo exists here. A
round's further vectors are opened with it (``aggregator.opening_further``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aggregator.blob_store import Blob
from aggregator.schemes.flow import StretchOfSum
from aggregator.server_memory import RoundMemory
from aggregator.server_step import NOTHING, STEPS, Further, Opened
from policies.gates import ClearedCohort
from privacy.errors import SealsumError
from privacy.plan import RoundPlan
from privacy.secagg.additive import Ring
from privacy.secagg.encoding import decode
from privacy.secagg.packing import unpack
from privacy.secagg.parts import Stretch, part_count, stretch, stretches
from privacy.sent import Sent, sent_in
from privacy.update import FLOAT_BYTES, model_bytes

_STEP_ELEMENTS = 1 << 18
"""Coordinates decoded at once: 2 MiB a temporary in float64, where those of a whole part take 16 MiB each."""


class SumImplausible(SealsumError):
    """What was opened is not a sum of honest updates; no model comes from it."""


async def open_sum(
    cleared: ClearedCohort,
    total_of: StretchOfSum,
    model_in: Blob,
    write: Callable[[bytes], object],
    memory: RoundMemory,
    further: Further = NOTHING,
    first: Blob | None = None,
) -> None:
    """Open the one sum of a round and write the model that follows from it.

    (1) The weight coordinate comes first: Σŵ must be what so many survivors can weigh, and a zero sum is
    never divided by; (2) each coordinate of the sum is one that honest updates can reach; (3) the mean
    Σŵ·Δ / Σŵ, and the server step of the plan.

    Args:
        model_in: raw float32[d] file of the plan's model.
        write: takes the raw bytes of the new model, part by part, in order.
        memory: what the optimiser remembers; it is read and written in the same order.
        further: what the round's further vectors have opened to, for steps that read them.
        first: raw file of the job's first model, where what is sent depends on it.

    Raises:
        Unprocessable: (3) leaves float32; PeerFault: what ``total_of`` refuses. SumImplausible: (1), (2).
    """
    plan = cleared.admitted.plan
    sent = await asyncio.to_thread(_sent, cleared, model_in, first)
    last = stretch(part_count(plan.vector_length) - 1, plan.vector_length)
    last_total = await total_of(last)
    survivors = len(cleared.survivors)
    weight = _weight(plan, last_total, survivors)  # (1)
    for piece in stretches(plan.vector_length):
        total = last_total if piece.index == last.index else await total_of(piece)
        opened = _Weighed(plan, piece, total, weight, survivors, further, sent)
        write(await asyncio.to_thread(_step, opened, model_in, memory))


def _weight(plan: RoundPlan, last_total: Ring, survivors: int) -> float:
    """Σŵ; the last coordinate of the vector.

    Uniform weights are encoded exactly, so their sum is exact too: anything else means that masks did
    not cancel, for example because a silo was sent another model (Pasquini et al. 2021).
    """
    weight = float(decode(last_total[-1:], plan.vector)[0])
    if plan.training.weights == "uniform" and weight != survivors:
        raise SumImplausible("sum: its weight is not the number of survivors; the shares do not fit together")
    if not 0.0 < weight <= survivors:
        raise SumImplausible(
            "sum: its weight is not one that the survivors can have; nothing is divided by it"
        )
    return weight


@dataclass(frozen=True)
class _Weighed:
    plan: RoundPlan
    piece: Stretch
    total: Ring
    weight: float
    survivors: int
    further: Further
    sent: NDArray[np.intp] | None
    """Which coordinates of the model the vector has, ascending; all where it is none."""

    def range_of(self, start: int, length: int) -> tuple[int, int]:
        """The stretch of the model, begin and end, around coordinates [start, start + length) of the vector.

        With what lies between them and is not sent; stretch by stretch the model is covered once.
        """
        if self.sent is None:
            return start, start + length
        ends = int(self.sent[start + length]) if start + length < len(self.sent) else self.plan.parameters
        return (0 if start == 0 else int(self.sent[start])), ends


def _step(part: _Weighed, model_in: Blob, memory: RoundMemory) -> bytes:
    """The new model's bytes of one stretch (the weight coordinate is not part of a model)."""
    plan, piece, survivors, per = part.plan, part.piece, part.survivors, part.plan.vector.per_element
    first = per * piece.start
    length = min(per * piece.length, plan.coordinates - first)
    # Of a few coordinates fewer at a time, so that the stretch of the model around them is no longer.
    step = max(1, _STEP_ELEMENTS * plan.coordinates // plan.parameters)
    # (3) Stochastic rounding moves each addend by less than one step of the scale.
    reach = survivors * (plan.vector.coordinate_bound + 2.0**-plan.vector.scale_bits)
    stepped = bytearray()
    for start in range(0, length, per * step):
        elements = part.total[start // per : start // per + step]
        opened = decode(unpack(elements, plan.vector, survivors)[: length - start], plan.vector)
        if np.any(np.abs(opened) > reach):
            raise SumImplausible(
                "sum: a coordinate is beyond what the survivors' bounded updates can add up to"
            )
        # (3)
        begin, end = part.range_of(first + start, len(opened))
        model = _read_model(model_in, begin, end - begin)
        slots = memory.read(begin, model)
        mask: NDArray[np.bool_] | None = None
        if part.sent is not None:
            here = Sent(part.sent[first + start : first + start + len(opened)] - begin)
            mask, opened = here.mask(len(model)), here.spread(opened, len(model))
        after = STEPS[plan.training.algorithm](
            Opened(model, opened, part.weight, part.further, mask), slots, plan.training, memory.moment
        )
        memory.write(after.slots)
        stepped += model_bytes(after.model)
    return bytes(stepped)


def _sent(cleared: ClearedCohort, model_in: Blob, first: Blob | None) -> NDArray[np.intp] | None:
    """The coordinates that the round sums. Where it is not all, this takes memory by the model."""
    plan, job = cleared.admitted.plan, cleared.admitted.job
    if plan.sent is None:
        return None
    now = _read_model(model_in, 0, plan.parameters)
    since = None if first is None else _read_model(first, 0, plan.parameters)
    sent = sent_in(plan.training, job.model, plan.job_digest, plan.round, now, since)
    return None if sent is None else sent.coordinates


def _read_model(model: Blob, start: int, length: int) -> NDArray[np.float32]:
    return np.frombuffer(model.read_range(FLOAT_BYTES * start, FLOAT_BYTES * length), dtype="<f4")
