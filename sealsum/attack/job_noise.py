"""Is the noise there that one job's ε claims? The canaries of ``noise_audit``, under that job's own noise.

What is the job's: σ, and whether each silo adds all of the noise or a share. What is not: four silos of which
one colludes, one full-batch step (q = 1) and clip norm 1, so that the step's claim is exact. Where each silo
adds all of the noise the sum holds more than is claimed, and the attack must fail by more.
"""

from __future__ import annotations

import math
from typing import Final

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.plan import DpTerms, VectorTerms
from sealsum.attack.canaries import SumTerms, scores_of_sums
from sealsum.attack.cohort import DELTA, NO_NOISE, private_step
from sealsum.attack.effort import Effort
from sealsum.attack.noise_audit import model_outcome
from sealsum.attack.outcome import Findings

_SILOS, _COLLUDING = 4, 1
_RING_BITS: Final = 28
"""Bits of a coordinate at its bound: four silos' sum stays below 2^31."""
_DEVIATIONS: Final = 10.0
"""A coordinate's bound in deviations of a silo's noise, beside what canaries add."""


def audit_job_noise(dp: DpTerms, effort: Effort) -> Findings:
    """Canaries in the opened sum under the job's noise, and with hardly any."""
    sigma = float(dp.noise_multiplier)
    claim = epsilon([DpEvent(sample_rate=1.0, noise_multiplier=sigma, steps=1)], DELTA)
    outcomes = []
    for protection, protected, noise in (
        (f"this job's noise, σ = {sigma:g}, {dp.model}", True, sigma),
        ("this job without its noise", False, NO_NOISE),
    ):
        scores = scores_of_sums(_terms(dp, noise, sigma), effort.canary_runs)
        outcomes.append(model_outcome("canaries, this job's sum", protection, protected, scores, claim))
    return Findings(tuple(outcomes))


def _terms(dp: DpTerms, noise: float, sigma: float) -> SumTerms:
    shares = _SILOS - _COLLUDING if dp.model == "distributed" else None
    step = private_step(noise, 1.0, shares, dp.model)
    return SumTerms(dp=step, silos=_SILOS, colluding=_COLLUDING, vector=_vector(sigma))


def _vector(sigma: float) -> VectorTerms:
    """A bound that noise of σ surely keeps to, and the finest scale that the ring has room for."""
    exponent = max(6, math.ceil(math.log2(_DEVIATIONS * sigma + 8)))
    return VectorTerms(coordinate_bound=2.0**exponent, scale_bits=_RING_BITS - exponent)
