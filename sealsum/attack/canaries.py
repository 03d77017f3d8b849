"""Canaries whose gradients touch one coordinate each: what the opened sum tells of them is read off directly.

A canary is a record (A·e_i, y) of a logistic model at zero: its gradient points along coordinate i, up to
1/A, and is clipped to C. All canaries of a run are pairwise orthogonal, so each is an experiment of its own,
in the worst direction there is. Which are present is decided by coins of the operating system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.ids import SiloId
from privacy.plan import DpTerms, TrainingTerms, VectorTerms
from sealsum.attack.bounds import Scores
from sealsum.attack.cohort import in_the_clear, names, round_plan, step_terms
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.sums import secure_sum
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from silo_agent.randomness import uniforms
from silo_agent.update import Update

CANARIES: Final = 2000
"""In one run: one a coordinate."""
_SCALE: Final = 64.0
"""A: what of a canary's gradient falls on the common bias is 1/A of it."""
_MODEL: Final = model_terms("logistic", CANARIES)
_VECTOR: Final = VectorTerms(coordinate_bound=64.0, scale_bits=22)
_LOCAL_RATE: Final = 1e-4
"""Learning rate of ``dp_fedavg``: so small that a canary's gradient stays far beyond the clip norm."""


@dataclass(frozen=True)
class SumTerms:
    """Whose noise is in a sum, in truth; the claim is another matter."""

    dp: DpTerms
    silos: int
    colluding: int
    """Silos whose updates the attacker knows and takes out of the sum."""
    silent: int = 0
    """Silos that add no noise, though they were to."""
    silent_dp: DpTerms | None = None
    """What those go by."""
    vector: VectorTerms = _VECTOR
    """Bound and grid of an update."""


def scores_of_sums(terms: SumTerms, runs: int) -> Scores:
    """Score each canary by its coordinate of the opened sum less what the colluding silos put in."""
    return _joined([_one_sum(terms) for _ in range(runs)])


def _one_sum(terms: SumTerms) -> Scores:
    included = uniforms(CANARIES) < 0.5
    silos = names(terms.silos)
    honest, colluding = silos[: terms.silos - terms.colluding], silos[terms.silos - terms.colluding :]
    homes = np.arange(CANARIES) % len(honest)
    records = {silo: _present(included & (homes == place)) for place, silo in enumerate(honest)}
    records |= {silo: _present(np.zeros(CANARIES, dtype=bool)) for silo in colluding}
    federation = _federation(terms.dp, records, terms.vector)
    silent = _federation(terms.silent_dp or terms.dp, records, terms.vector)
    start = np.zeros(_MODEL.parameters, dtype=np.float32)
    updates: dict[SiloId, Update] = {
        silo: (silent if place < terms.silent else federation).update_of(silo, start)
        for place, silo in enumerate(silos)
    }
    seen = secure_sum(round_plan(federation, start), updates)
    for silo in colluding:
        seen = seen - in_the_clear(updates[silo], terms.vector)
    return Scores(included, _read(seen))


def scores_of_updates(dp: DpTerms, local_steps: int, runs: int) -> Scores:
    """Score by one silo's bare update under ``dp_fedavg``: as if the secure sum had failed."""
    return _joined([_one_update(dp, local_steps) for _ in range(runs)])


def _one_update(dp: DpTerms, local_steps: int) -> Scores:
    included = uniforms(CANARIES) < 0.5
    training = TrainingTerms(
        algorithm="dp_fedavg", local_steps=local_steps, learning_rate=_LOCAL_RATE, server_learning_rate=1.0
    )
    (silo,) = names(1)
    federation = Federation(
        RoundTerms(_MODEL, training, dp, _VECTOR), ADAPTERS["logistic"], {silo: _present(included)}
    )
    update = federation.update_of(silo, np.zeros(_MODEL.parameters, dtype=np.float32))
    return Scores(included, _read(in_the_clear(update, _VECTOR)))


def _federation(dp: DpTerms, records: dict[SiloId, Records], vector: VectorTerms) -> Federation:
    return Federation(step_terms(_MODEL, dp, vector), ADAPTERS["logistic"], records)


def _present(which: NDArray[np.bool_]) -> Records:
    rows = np.flatnonzero(which)
    features = np.zeros((len(rows), CANARIES), dtype=np.float32)
    features[np.arange(len(rows)), rows] = _SCALE
    return Records(features, _labels()[rows])


def _labels() -> NDArray[np.float32]:
    # Both classes by turns, so that on the bias they cancel.
    return (np.arange(CANARIES) % 2).astype(np.float32)


def _read(update: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each canary's coordinate, signed so that its presence makes it larger."""
    return update[:CANARIES] * np.where(_labels() == 1, 1.0, -1.0)


def _joined(runs: list[Scores]) -> Scores:
    return Scores(
        np.concatenate([run.included for run in runs]), np.concatenate([run.values for run in runs])
    )
