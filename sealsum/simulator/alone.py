"""Training without a federation, to compare with: all records in one place, or one silo by itself.

The same algorithm and the same server step as in a round, but no sum: there is nobody to add up with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aggregator.server_step import STEPS, Moment, Opened, first_slots
from privacy.errors import ConfigurationError
from privacy.plan import AlgorithmName
from sealsum.simulator.plan import RoundTerms
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ModelAdapter
from silo_agent.update import FloatUpdate

LOCAL: Final[Mapping[AlgorithmName, Callable[[Task], FloatUpdate]]] = MappingProxyType(
    {"fedavg": fedavg, "dp_fedavg": dp_fedavg}
)
"""Algorithms whose guarantee, if any, needs nobody else."""


def train_alone(
    terms: RoundTerms,
    adapter: ModelAdapter,
    records: Records,
    start: NDArray[np.float32],
    rounds: int,
    algorithms: Mapping[AlgorithmName, Callable[[Task], FloatUpdate]] = LOCAL,
) -> NDArray[np.float32]:
    """The model after so many rounds of ``fedavg`` or ``dp_fedavg`` on these records, float32[d].

    With one local step a round, ``dp_fedavg`` is central DP-SGD (Abadi et al. 2016).

    Args:
        algorithms: ``LINEAR_LOCAL`` for sweeps over linear models.

    Raises:
        ConfigurationError: the algorithm needs others. Unprocessable: training diverged.
    """
    training = terms.training
    if training.algorithm not in LOCAL:
        raise ConfigurationError(f"algorithm: expected {' or '.join(LOCAL)}, got {training.algorithm}")
    workbench = Workbench()
    model, slots, averaged = start, first_slots(start, training.server), 0
    for number in range(1, rounds + 1):
        task = Task(
            model=terms.model,
            training=training,
            dp=terms.dp,
            vector=terms.vector,
            start=model,
            adapter=adapter,
            records=records,
            workbench=workbench,
        )
        update = algorithms[training.algorithm](task)
        moment = Moment(number, rounds, averaged)
        opened = Opened(model, update.values.astype(np.float64), 1.0)
        stepped = STEPS[training.algorithm](opened, slots, training, moment)
        model, slots = stepped.model, stepped.slots
        averaged += moment.in_tail(training.server)
    return model
