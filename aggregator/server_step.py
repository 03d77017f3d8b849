"""What the server does with an opened sum: FedAvg and its optimisers, all post-processing of that one sum.

Whatever is computed here costs no privacy budget: its inputs are the opened sums and public constants
(Dwork, Roth 2014, Proposition 2.1). Works on stretches of a vector, coordinate by coordinate; knows no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from privacy.errors import Unprocessable
from privacy.plan import AlgorithmName, ServerTerms, TrainingTerms
from privacy.secagg.vectors import VectorName
from privacy.vector_terms import CURVATURE, HESSIAN, MASK

Reals = NDArray[np.float64]
Further = Mapping[VectorName, tuple[float, ...]]
NOTHING: Final[Further] = MappingProxyType({})
MOMENTUM, SECOND, AVERAGE, KEPT = "momentum", "second", "average", "kept"
"""What an optimiser remembers between rounds, float64[d] each; of ``mifa`` the sum of all last updates."""


@dataclass(frozen=True)
class Opened:
    """A stretch of an opened sum beside the model it applies to."""

    model: NDArray[np.float32]
    total: Reals
    """Σŵ·Δ over the survivors."""
    weight: float
    """Σŵ, above 0."""
    further: Further = field(default_factory=lambda: NOTHING)
    """What the round's further vectors opened to."""
    sent: NDArray[np.bool_] | None = None
    """Where the sum has anything; elsewhere model and memory stay as they are. All of it where none."""


@dataclass(frozen=True)
class Moment:
    """Where in a job a round stands."""

    round: int
    rounds: int
    averaged: int
    """Rounds that are in the average already."""

    @property
    def last(self) -> bool:
        """Whether no round comes after it."""
        return self.round == self.rounds

    def in_tail(self, server: ServerTerms) -> bool:
        """Whether the model after this round counts in a tail average."""
        return self.round > self.rounds - server.tail_rounds


@dataclass(frozen=True)
class Stepped:
    """The next model of a stretch, float32[m], and what is remembered for the round after."""

    model: NDArray[np.float32]
    slots: dict[str, Reals]


ServerStep = Callable[[Opened, Mapping[str, Reals], TrainingTerms, Moment], Stepped]


def slots_of(server: ServerTerms) -> tuple[str, ...]:
    """Names of the vectors that these terms need from round to round; none for plain FedAvg."""
    names = [KEPT] if server.silos > 0 else []
    if server.optimizer != "sgd" or server.momentum > 0:
        names.append(MOMENTUM)
    if server.optimizer != "sgd":
        names.append(SECOND)
    if server.tail_rounds > 0 or server.ema_decay > 0:
        names.append(AVERAGE)
    return tuple(names)


def first_slots(model: NDArray[np.float32], server: ServerTerms) -> dict[str, Reals]:
    """What is remembered before the first round: v₋₁ = τ² (Reddi et al. 2021), averages of their start."""
    zero = np.zeros(len(model))
    values = {
        MOMENTUM: zero,
        SECOND: zero + server.tau**2,
        AVERAGE: model.astype(np.float64) if server.ema_decay > 0 else zero,
        KEPT: zero,
    }
    return {name: values[name] for name in slots_of(server)}


def learning_rate(training: TrainingTerms, moment: Moment) -> float:
    """η of this round: constant, or falling to 0 after the last round on a line or half a cosine."""
    done = (moment.round - 1) / moment.rounds
    share = {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2}
    return training.server_learning_rate * share[training.server.schedule]


def federated(opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment) -> Stepped:
    """model + η · direction of the mean update, computed in float64.

    ``sgd``: the mean, or with momentum m ← βm + Δ (FedAvgM: Hsu, Qi, Brown 2019, arXiv 1909.06335);
    ``adam``, ``yogi``: Algorithm 2 of Reddi et al. 2021 (arXiv 2003.00295). After the last round the model is
    the average of the tail, or the exponential moving average, where the terms ask for one; until then rounds
    start from the iterate itself.

    Raises:
        Unprocessable: a parameter leaves float32's finite range.
    """
    return _stepped(opened.total / opened.weight, opened, slots, training, moment)


def fair(opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment) -> Stepped:
    """As ``federated``, with Σŵ·Δ / (Σŵ + Σcurvature): q-FedAvg (Li et al. 2020, arXiv 1905.10497).

    Raises:
        Unprocessable: as ``federated``.
    """
    divisor = opened.weight + opened.further[VectorName(CURVATURE)][0]
    return _stepped(opened.total / divisor, opened, slots, training, moment)


def masked(opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment) -> Stepped:
    """As ``federated``, each coordinate divided by how many sent it; those that too few sent stay.

    Raises:
        Unprocessable: as ``federated``; the stretch is not the whole model.
    """
    sent = np.rint(np.array(opened.further[VectorName(MASK)]))
    if len(sent) != len(opened.model):
        raise Unprocessable(f"further.{MASK}: expected {len(opened.model)} numbers, got {len(sent)}")
    enough = sent >= training.server.mask_minimum
    mean: Reals = np.where(enough, opened.total / np.maximum(sent, 1.0), 0.0)
    return _stepped(mean, opened, slots, training, moment)


def with_absent(
    opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment
) -> Stepped:
    """As ``federated``, with the mean over all silos' last updates: MIFA (Gu et al. 2021, arXiv 2106.04159).

    What is opened is the sum of differences to the silos' last ones; their own number is no part of it.

    Raises:
        Unprocessable: as ``federated``.
    """
    kept = slots[KEPT] + opened.total
    stepped = _stepped(kept / training.server.silos, opened, slots, training, moment)
    return Stepped(stepped.model, {**stepped.slots, KEPT: kept})


def newton(opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment) -> Stepped:
    """As ``federated``, along (H + ridge · I)⁻¹ · mean negative gradient, H the mean Hessian.

    Raises:
        Unprocessable: as ``federated``; the stretch is not the whole model; H + ridge · I is not positive.
    """
    triangle, count = np.array(opened.further[VectorName(HESSIAN)]), len(opened.model)
    if len(triangle) != count * (count + 1) // 2:
        raise Unprocessable(
            f"further.{HESSIAN}: expected a triangle of {count} rows, got {len(triangle)} numbers"
        )
    hessian = np.zeros((count, count))
    hessian[np.triu_indices(count)] = triangle
    hessian += np.triu(hessian, 1).T + training.server.ridge * np.eye(count)
    try:
        factor = cho_factor(hessian)
    except LinAlgError as error:
        raise Unprocessable(
            "model: the Hessian is not positive, so no Newton step exists; raise training.server.ridge"
        ) from error
    direction: Reals = cho_solve(factor, opened.total / opened.weight)
    return _stepped(direction, opened, slots, training, moment)


def _stepped(
    mean: Reals, opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment
) -> Stepped:
    server = training.server
    direction, after = _direction(mean, slots, server)
    if opened.sent is not None:
        direction = np.where(opened.sent, direction, 0.0)
        after = {name: np.where(opened.sent, value, slots[name]) for name, value in after.items()}
    iterate = _finite(opened.model.astype(np.float64) + learning_rate(training, moment) * direction)
    if AVERAGE not in slots:
        return Stepped(iterate, after)
    average = _average(iterate.astype(np.float64), slots[AVERAGE], server, moment)
    after[AVERAGE] = average
    return Stepped(_finite(average) if moment.last else iterate, after)


def published(opened: Opened, slots: Mapping[str, Reals], training: TrainingTerms, moment: Moment) -> Stepped:
    """The answer to a query: the opened sum itself."""
    return Stepped(_finite(opened.total), {})


def _direction(
    mean: Reals, slots: Mapping[str, Reals], server: ServerTerms
) -> tuple[Reals, dict[str, Reals]]:
    if server.optimizer == "sgd":
        if MOMENTUM not in slots:
            return mean, {}
        momentum = server.momentum * slots[MOMENTUM] + mean
        return momentum, {MOMENTUM: momentum}
    momentum = server.beta_1 * slots[MOMENTUM] + (1 - server.beta_1) * mean
    square, before = np.square(mean), slots[SECOND]
    if server.optimizer == "adam":
        second = server.beta_2 * before + (1 - server.beta_2) * square
    else:
        second = before - (1 - server.beta_2) * square * np.sign(before - square)
    return momentum / (np.sqrt(second) + server.tau), {MOMENTUM: momentum, SECOND: second}


def _average(iterate: Reals, average: Reals, server: ServerTerms, moment: Moment) -> Reals:
    if server.ema_decay > 0:
        return server.ema_decay * average + (1 - server.ema_decay) * iterate
    if not moment.in_tail(server):
        return average
    return average + (iterate - average) / (moment.averaged + 1)


def _finite(stepped: Reals) -> NDArray[np.float32]:
    if not np.all(np.abs(stepped) <= np.finfo(np.float32).max):
        raise Unprocessable("model: a parameter left the finite range of float32; training diverged")
    return stepped.astype(np.float32)


STEPS: Final[Mapping[AlgorithmName, ServerStep]] = MappingProxyType(
    {
        "fedavg": federated,
        "qfedavg": fair,
        "mifa": with_absent,
        "newton": newton,
        "sparse_masks": masked,
        "dp_fedavg": federated,
        "dp_fedsgd": federated,
        "dp_statistics": published,
        "dp_evaluation": published,
    }
)
"""What each algorithm's sum becomes."""
