"""The model that a job with own parts has left at this silo: the shared one with what the silo kept."""

from __future__ import annotations

from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from silo_agent.algorithms.memory import Memory
from silo_agent.algorithms.own_parts import DITTO, OWN, coordinates_of, in_place
from silo_agent.models.adapters import ModelAdapter
from silo_agent.personal.methods import Made
from silo_agent.personal.workplace import Vector


def left_by_job(spec: JobSpec, adapter: ModelAdapter, shared: Vector, memory: Memory) -> Made:
    """Nothing is fitted: ditto's own model, or the job's with the silo's parts in place.

    Raises:
        ConfigurationError: the job leaves nothing, or this silo remembers no round of it.
    """
    personal = spec.training.personal
    if personal is None or personal.kind == "per_fedavg":
        raise ConfigurationError(
            "--method job: expected a job that leaves silos parts of their own (training.personal), got one "
            "that does not; choose map, fine_tune or ditto"
        )
    name = DITTO if personal.kind == "ditto" else OWN
    if name not in memory.arrays:
        raise ConfigurationError(
            "--method job: this silo remembers no round of the job: it took no part, or the job ended more "
            "than 30 days ago; choose map, fine_tune or ditto"
        )
    if personal.kind == "ditto":
        return Made(memory.arrays[DITTO], {"last_round": memory.round})
    mine = coordinates_of(adapter, spec.model, personal)
    return Made(in_place(shared, memory.arrays, mine), {"last_round": memory.round})
