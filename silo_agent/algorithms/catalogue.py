"""Every algorithm a job may name, and the function that is this silo's half of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from privacy.plan import AlgorithmName
from privacy.vector_terms import METRICS
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.dp_query import dp_evaluation, dp_statistics
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.task import Task
from silo_agent.update import Update

ALGORITHMS: Final[Mapping[AlgorithmName, Callable[[Task], Update]]] = MappingProxyType(
    {
        "fedavg": fedavg,
        "dp_fedavg": dp_fedavg,
        "dp_fedsgd": dp_fedsgd,
        "dp_statistics": dp_statistics,
        "dp_evaluation": dp_evaluation,
    }
)
COMPUTED_BESIDE: Final[Mapping[AlgorithmName, tuple[str, ...]]] = MappingProxyType({"dp_fedsgd": (METRICS,)})
"""Which further vectors an algorithm computes beside its update."""
