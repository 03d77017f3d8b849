"""Every algorithm a job may name, and the function that is this silo's half of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.plan import AlgorithmName, TrainingTerms
from privacy.vector_terms import CONTROL, CURVATURE, HESSIAN, MASK, METRICS
from silo_agent.algorithms.control import AHEAD, NONE, PACE, Opened, settled
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.dp_query import dp_evaluation, dp_statistics
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.memory import Arrays
from silo_agent.algorithms.mifa import mifa
from silo_agent.algorithms.newton import newton
from silo_agent.algorithms.own_parts import personalised
from silo_agent.algorithms.per_fedavg import per_fedavg
from silo_agent.algorithms.qfedavg import qfedavg
from silo_agent.algorithms.sent_part import sent_part
from silo_agent.algorithms.sparse_masks import sparse_masks
from silo_agent.algorithms.task import Task
from silo_agent.update import Update

ALGORITHMS: Final[Mapping[AlgorithmName, Callable[[Task], Update]]] = MappingProxyType(
    {
        "fedavg": fedavg,
        "qfedavg": qfedavg,
        "mifa": mifa,
        "newton": newton,
        "sparse_masks": sparse_masks,
        "dp_fedavg": dp_fedavg,
        "dp_fedsgd": dp_fedsgd,
        "dp_statistics": dp_statistics,
        "dp_evaluation": dp_evaluation,
    }
)
COMPUTED_BESIDE: Final[Mapping[AlgorithmName, tuple[str, ...]]] = MappingProxyType(
    {
        "dp_fedsgd": (METRICS,),
        "fedavg": (CONTROL,),
        "qfedavg": (CURVATURE,),
        "newton": (HESSIAN,),
        "sparse_masks": (MASK,),
    }
)
"""Which further vectors an algorithm computes beside its update."""


def update_of(
    task: Task, algorithms: Mapping[AlgorithmName, Callable[[Task], Update]] = ALGORITHMS
) -> Update:
    """What a silo makes of a round: its algorithm's update, without its own parts and what is not sent.

    Raises:
        SealsumError: as the algorithm; ConfigurationError: as ``personalised``.
    """
    personal = task.training.personal
    if personal is not None and personal.kind == "per_fedavg":
        return per_fedavg(task)
    return sent_part(task, lambda whole: personalised(whole, algorithms[task.training.algorithm]))


def needs_model_out(arrays: Arrays) -> bool:
    """Whether what a round staged is completed by the model that comes out of it."""
    return AHEAD in arrays


def needs_opened(arrays: Arrays) -> bool:
    """Whether it is completed by what the round's further vectors opened to."""
    return PACE in arrays


def settle(
    training: TrainingTerms, arrays: Arrays, model_out: NDArray[np.float32], opened: Opened = NONE
) -> Arrays:
    """What to remember of a round that counted, once its model, float32[d], and further sums are known."""
    asked = needs_model_out(arrays) or needs_opened(arrays)
    return settled(training, arrays, model_out, opened) if asked else arrays
