"""Silos in memory with skewed records, and the arithmetic of logistic regression once more in numpy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.ids import PartyId, SiloId
from privacy.plan import DpTerms, LocalTerms, ServerTerms, TrainingTerms, VectorTerms
from privacy.vector_terms import FurtherVector
from sealsum.job_further import algorithm_further
from sealsum.simulator.federation import Federation, Standing
from sealsum.simulator.plan import RoundTerms
from silo_agent.algorithms.memory import FIRST, Memory
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms

WIDTH = 4
MODEL = model_terms("logistic", WIDTH)
SILOS = tuple(SiloId(PartyId(name)) for name in ("a", "b", "c", "d"))
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=24)
RATE, STEPS = 0.5, 4
Reals = NDArray[np.float64]


def terms(algorithm: str = "fedavg", **changes: Any) -> TrainingTerms:
    """``STEPS`` steps of ``RATE``; ``server`` and ``local`` as mappings."""
    fields: dict[str, Any] = {
        "algorithm": algorithm,
        "local_steps": STEPS,
        "learning_rate": RATE,
        "server_learning_rate": 1.0,
    }
    fields |= changes
    for name, kind in (("server", ServerTerms), ("local", LocalTerms)):
        if name in changes:
            fields[name] = kind(**changes[name])
    return TrainingTerms(**fields)


def records_of(number: int) -> Records:
    """Of silo ``number``: each has other features, another rule and another size."""
    random = np.random.default_rng(number)
    features = random.normal(0.3 * number, 1.0, (20 + 10 * number, WIDTH)).clip(-3, 3).astype(np.float32)
    truth = np.linspace(-1, 1, WIDTH) + 0.5 * random.standard_normal(WIDTH)
    noise = 0.5 * random.standard_normal(len(features))
    return Records(features, (features @ truth + noise > 0.2 * number).astype(np.float32))


def federation(training: TrainingTerms, rounds: int = 1, dp: DpTerms | None = None) -> Federation:
    """Four silos; sums are opened without masks, which changes nothing of them."""
    further: tuple[FurtherVector, ...] = algorithm_further(training, MODEL, "additive", len(SILOS))
    records = {silo: records_of(number) for number, silo in enumerate(SILOS)}
    return Federation(RoundTerms(MODEL, training, dp, VECTOR, further), ADAPTERS["logistic"], records, rounds)


def run(world: Federation, dropped: dict[int, Collection[SiloId]] | None = None) -> list[Standing]:
    """The standing after every round, by round the silos that drop out."""
    standing = world.at(np.zeros(MODEL.parameters, dtype=np.float32))
    standings = []
    for number in range(1, world.rounds + 1):
        standing = world.after_round(standing, (dropped or {}).get(number, ()))
        standings.append(standing)
    return standings


def task(training: TrainingTerms, number: int = 0, memory: Memory = FIRST, **changes: Any) -> Task:
    """One silo's work from zero."""
    start = changes.pop("start", np.zeros(MODEL.parameters, dtype=np.float32))
    given = {"records": records_of(number), "dp": None, **changes}
    return Task(
        model=MODEL,
        training=training,
        vector=VECTOR,
        start=start,
        adapter=ADAPTERS["logistic"],
        memory=memory,
        **given,
    )


# --- the same once more, in numpy ---


def gradient(model: Reals, records: Records) -> Reals:
    """Of the mean log-loss, float64[d]."""
    rows = np.hstack([records.features, np.ones((len(records), 1))]).astype(np.float64)
    return rows.T @ (1 / (1 + np.exp(-rows @ model)) - records.labels) / len(records)


def loss(model: Reals, records: Records) -> float:
    """The mean log-loss."""
    rows = np.hstack([records.features, np.ones((len(records), 1))]).astype(np.float64)
    scores = rows @ model
    return float(np.mean(np.logaddexp(0, scores) - records.labels * scores))


def descended(model: Reals, records: Records, steps: int = STEPS, rate: float = RATE) -> Reals:
    """After plain steps."""
    for _ in range(steps):
        model = model - rate * gradient(model, records)
    return model
