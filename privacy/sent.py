"""The coordinates of an update that a round sums, computed alike by silos, aggregator and researchers.

Public inputs only: the signed job, the round's number, and for ``top`` two public models. Draws are by
AES-256-CTR under SHA-256 of job and round; they hide nothing, and nobody but who signs the job can move them.
Knows no plan and no scheme.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SealsumError
from privacy.ids import Digest
from privacy.model_terms import ModelTerms
from privacy.personal_terms import own_tensors
from privacy.secagg.keystream import keystream
from privacy.training_terms import TrainingTerms

_DOMAIN = b"sealsum/sent/v1\x00"
Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Sent:
    """What a round sums of d coordinates."""

    coordinates: NDArray[np.intp] = field(repr=False)
    """intp[k], ascending and distinct."""
    trained: NDArray[np.bool_] | None = field(default=None, repr=False)
    """bool[d]: the coordinates of the phase's layers, which alone move at silos; all where there is none."""

    def mask(self, parameters: int) -> NDArray[np.bool_]:
        """bool[d], true where a coordinate is sent."""
        whole = np.zeros(parameters, dtype=np.bool_)
        whole[self.coordinates] = True
        return whole

    def spread(self, values: NDArray[np.float64], parameters: int) -> NDArray[np.float64]:
        """float64[d] with these values, float64[k], at their coordinates and zeros elsewhere."""
        whole = np.zeros(parameters)
        whole[self.coordinates] = values
        return whole


def count_sent(training: TrainingTerms, model: ModelTerms, number: int) -> int | None:
    """How many coordinates round ``number`` sums; ``None`` where all are, by terms that say nothing else."""
    layers = _layers(training, number)
    if training.sparse is None and not layers:
        return None
    tensors = own_tensors([spec.name for spec in model.layout], layers) if layers else None
    pool = sum(spec.size for spec in model.layout if tensors is None or spec.name in tensors)
    return pool if training.sparse is None else max(1, math.ceil(training.sparse.share * pool))


def sent_in(
    training: TrainingTerms,
    model: ModelTerms,
    job: Digest,
    number: int,
    now: Vector,
    first: Vector | None,
) -> Sent | None:
    """Which ones; ``None`` as in ``count_sent``.

    Args:
        now: the model that the round starts from, float32[d]. first: the job's first one, for ``top``.

    Raises:
        SealsumError: ``top`` without the first model: a bug, not a peer's doing.
    """
    count = count_sent(training, model, number)
    if count is None:
        return None
    layers = _layers(training, number)
    trained: NDArray[np.bool_] | None = None
    pool = np.arange(model.parameters)
    if layers:
        own = own_tensors([spec.name for spec in model.layout], layers)
        trained = np.concatenate([np.full(spec.size, spec.name in own) for spec in model.layout])
        pool = np.flatnonzero(trained)
    if training.sparse is None:
        return Sent(pool, trained)
    lots = _lots(job, number, model.parameters)[pool]
    chosen = np.zeros(0, dtype=np.intp)
    if training.sparse.kind == "top":
        if first is None:
            raise SealsumError("training.sparse: expected the job's first model with top")
        # What has not moved at all is no more a candidate than anything else: lots decide.
        chosen = np.lexsort((lots, -np.abs(now[pool] - first[pool])))[: math.ceil(count / 2)]
    left = np.delete(np.arange(len(pool)), chosen)
    drawn = left[np.argsort(lots[left], kind="stable")[: count - len(chosen)]]
    return Sent(np.sort(pool[np.concatenate([chosen, drawn])]), trained)


def _layers(training: TrainingTerms, number: int) -> tuple[str, ...]:
    phase = training.phase(number)
    return () if phase is None else phase.layers


def _lots(job: Digest, number: int, count: int) -> NDArray[np.uint64]:
    key = hashlib.sha256(_DOMAIN + bytes.fromhex(job) + number.to_bytes(8, "big")).digest()
    lots: NDArray[np.uint64] = keystream(key, 0, 2 * count).view("<u8")
    return lots
