"""What ``silo.yaml`` says of the process that trains: whether there is one, what it may have, its caps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from privacy.canonical import Frozen


class WorkerSettings(Frozen):
    """``worker`` in ``silo.yaml``. Without a process of its own only threads and passes are bounded."""

    process: bool = True
    """Read data and train in a process of its own, which has no keys, no ledger and no network."""
    network: Literal["required", "best_effort"] = "required"
    """``required``: no round where the network cannot be taken from the worker (Linux: a network namespace).
    ``best_effort``: train all the same; the log says so at every start."""
    memory_mib: Annotated[int, Field(ge=256)] | None = None
    """The most memory of its own that the worker may have; a round that needs more is refused."""
    cpu_seconds: Annotated[int, Field(ge=1)] | None = None
    """The most processor time of one job; then the worker is ended, and the round with it."""
    cpu_threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Threads that compute a step. Sums may differ in their last bits between one number and another."""
    nice: Annotated[int, Field(ge=0, le=19)] = 0
    """How far the worker gives way to other processes."""
    pass_records: Annotated[int, Field(ge=1)] | None = None
    """The most records whose gradients are in memory together: a step's sample is cut into such passes."""
