"""Ways to a personal model once a job's model is there. Each returns the model and what it chose.

All of them stay at the silo, so none costs budget and none changes what the job released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError, Unprocessable
from silo_agent.personal.figures import MethodName
from silo_agent.personal.fitting import Pull, descended, fitted
from silo_agent.personal.measures import losses_of
from silo_agent.personal.workplace import Vector, Workplace, first_weights

WIDTHS: Final = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 10.0)
"""Prior widths that cross-validation tries, in units of a parameter; features here are scaled to [−1, 1]."""
STEPS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200)
"""Numbers of steps at which fine-tuning is looked at; 0 is the job's model itself."""
REGULAR_WEIGHT: Final = 0.1
"""FederatedScope's default for Ditto."""
LEARNING_RATE: Final = 0.5


@dataclass(frozen=True)
class Choices:
    """What a person may fix; what she leaves out is chosen by cross-validation, or the default."""

    prior_width: float | None = None
    steps: int | None = None
    learning_rate: float = LEARNING_RATE
    regular_weight: float = REGULAR_WEIGHT


@dataclass(frozen=True)
class Made:
    """A personal model, float32[d], and how it came about."""

    vector: Vector = field(repr=False)
    chosen: Mapping[str, float]


def fine_tune(place: Workplace, shared: Vector, choices: Choices) -> Made:
    """Gradient descent from the job's model, for no more steps than predict patients of other folds best.

    Raises:
        ConfigurationError: too few patients to choose the steps by. Unprocessable: it diverged.
    """
    steps = choices.steps
    if steps is None:
        asked = [
            [losses_of(inside, one, outside) for one in _path(inside, shared, choices.learning_rate)]
            for inside, outside in place.split()
        ]
        steps = STEPS[nearest_of_the_best(np.concatenate(asked, axis=1))]
    *_, vector = shared, *descended(place, shared, choices.learning_rate, steps)
    return Made(vector, {"steps": steps, "learning_rate": choices.learning_rate})


def _path(place: Workplace, shared: Vector, learning_rate: float) -> list[Vector]:
    """The model at each of ``STEPS``; where descent diverges, its last finite model ever after."""
    models, vector = [shared], shared
    try:
        for number, vector in enumerate(descended(place, shared, learning_rate, STEPS[-1]), start=1):
            if number in STEPS:
                models.append(vector)
    except Unprocessable:
        models += [vector] * (len(STEPS) - len(models))
    return models


def maximum_a_posteriori(place: Workplace, shared: Vector, choices: Choices) -> Made:
    """The mode under a Gaussian prior at the job's model, its width chosen by cross-validation.

    A narrow prior gives the job's model, a wide one the silo's own; which is right its patients say.

    Raises:
        ConfigurationError: too few patients to choose the width by. Unprocessable: it diverged.
    """
    width = choices.prior_width or best_width(place, shared)
    return Made(_with_prior(place, shared, width), {"prior_width": width})


def ditto(place: Workplace, shared: Vector, choices: Choices) -> Made:
    """Ditto's personal objective (Li et al. 2021, arXiv 2012.04221, equation 2) at the final model.

    Nothing flows back. It is the minimum of ``map`` with a prior of width 1/√(n · regular_weight): given, not
    chosen.

    Raises:
        Unprocessable: it diverged.
    """
    if not choices.regular_weight > 0:
        raise ConfigurationError(f"--regular-weight: expected more than 0, got {choices.regular_weight}")
    vector = fitted(place, Pull(shared, choices.regular_weight))
    return Made(vector, {"regular_weight": choices.regular_weight})


def local_only(place: Workplace) -> Made:
    """What the silo has without anybody else: the same code and the same care, with a prior at a first model.

    Raises:
        ConfigurationError: too few patients to choose the width by. Unprocessable: it diverged.
    """
    everything = Workplace(place.adapter, place.terms, place.records)
    start = first_weights(place.adapter, place.terms)
    width = best_width(everything, start)
    return Made(_with_prior(everything, start, width), {"prior_width": width})


def best_width(place: Workplace, centre: Vector) -> float:
    """The narrowest prior under which models predict patients whom they lack as well as under any.

    Raises:
        ConfigurationError: too few patients. Unprocessable: a fit diverged.
    """
    asked = [
        [losses_of(inside, _with_prior(inside, centre, width), outside) for width in WIDTHS]
        for inside, outside in place.split()
    ]
    return WIDTHS[nearest_of_the_best(np.concatenate(asked, axis=1))]


def nearest_of_the_best(losses: NDArray[np.float64]) -> int:
    """The first choice that is within one standard error of the best (Breiman et al. 1984, section 3.4.3).

    Choices go from the centre outwards, so that the data must speak for leaving it. The error is of the
    difference on the same records, which is what tells two choices apart.

    Args:
        losses: float64[choices, records], each record's by a model that was fitted without it.
    """
    best = int(np.argmin(losses.mean(axis=1)))
    worse = losses - losses[best]
    error = worse.std(axis=1, ddof=1) / math.sqrt(losses.shape[1])
    return int(np.argmax(worse.mean(axis=1) <= error))


def _with_prior(place: Workplace, centre: Vector, width: float) -> Vector:
    """−log posterior over n: the mean loss and ‖w − centre‖² / (2 n width²)."""
    return fitted(place, Pull(centre, 1.0 / (len(place.records) * width**2)))


METHODS: Final[Mapping[MethodName, Callable[[Workplace, Vector, Choices], Made]]] = MappingProxyType(
    {"fine_tune": fine_tune, "map": maximum_a_posteriori, "ditto": ditto}
)
