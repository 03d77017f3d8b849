"""The federation that is attacked: hospitals of a simulated cohort, and the terms of one private step.

Everything here is public or synthetic. Protections are switched off by *terms*, as a careless job would: a
clip norm beyond every gradient, noise too small to matter.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privacy.ids import PartyId, SiloId
from privacy.plan import DpTerms, ModelTerms, RoundPlan, TrainingTerms, VectorTerms
from privacy.update import model_bytes, model_digest
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms, simulated_plan
from sealsum.simulator.sums import secure_sum
from silo_agent.update import FloatUpdate, Update

DELTA: Final = 1e-5
NO_NOISE: Final = 1e-9
"""σ at which the noise vanishes in the grid of an update."""
NO_CLIP: Final = 1e4
"""Clip norm that no gradient here reaches."""
ONE_STEP: Final = TrainingTerms(
    algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0
)
"""Learning rate and normaliser are 1: a silo's update is minus the noisy sum of its clipped gradients."""


def names(silos: int) -> tuple[SiloId, ...]:
    """Ids of so many silos, sorted."""
    return tuple(SiloId(PartyId(f"silo-{number:02d}")) for number in range(silos))


def private_step(
    noise: float,
    clip: float,
    shares: int | None = None,
    model: Literal["local", "distributed"] = "distributed",
) -> DpTerms:
    """Full-batch terms: no sampling, so that a step costs exactly what a Gaussian mechanism costs."""
    return DpTerms(
        model=model,
        noise_shares=shares,
        unit="record",
        sample_rate=1.0,
        noise_multiplier=noise,
        clip_l2=clip,
        normaliser=1.0,
        delta=DELTA,
    )


def step_terms(model: ModelTerms, dp: DpTerms, vector: VectorTerms) -> RoundTerms:
    """One step of ``dp_fedsgd``."""
    return RoundTerms(model=model, training=ONE_STEP, dp=dp, vector=vector)


def round_plan(federation: Federation, start: NDArray[np.float32]) -> RoundPlan:
    """A fresh plan of one round from ``start``, float32[d]."""
    model = federation.terms.model
    return simulated_plan(
        federation.terms, federation.silos.keys(), model_digest(model, [model_bytes(start)])
    )


def opened_gradient(federation: Federation, start: NDArray[np.float32]) -> NDArray[np.float64]:
    """Minus the sum that the aggregator opens under ``ONE_STEP``, by the real path: float64[d]."""
    updates: dict[SiloId, Update] = {silo: federation.update_of(silo, start) for silo in federation.silos}
    return -secure_sum(round_plan(federation, start), updates)


def in_the_clear(update: Update, vector: VectorTerms) -> NDArray[np.float64]:
    """An update as whoever holds it unmasked reads it: float64[d]."""
    if isinstance(update, FloatUpdate):
        return update.values.astype(np.float64)
    return update.steps / 2.0**vector.scale_bits
