"""How long an honest update under DP-SGD can be: the norm bound that a job may claim and honest silos keep.

Δ = −(η/L)·Σ_t (G_t + N_t) over T steps (``DpTerms``): each record's gradient is clipped to C, so that
‖G_t‖ ≤ C·b_t for a sample of b_t records, and N_t ~ N(0, (σC)²·I_d) is drawn after all else of its step. So

    ‖Δ‖ ≤ (η·C/L)·(Σ_t b_t + σ·√T·(√d + √(2s)))     but for probability e^−s   (noise)

as ‖N‖ of a standard Gaussian exceeds √d + √(2s) that rarely (Boucheron et al. 2013, Theorem 5.6: the norm is
1-Lipschitz). Σ_t b_t counts Poisson samples: its mean is at most μ = T·L for a silo whose expected sample is
at most the public normaliser L, and it exceeds μ + s/3 + √(s²/9 + 2sμ) with probability below e^−s
(Bernstein). With s = 41·ln 2 both fail together less often than 2^−40.

The noise makes most of it: ≈ η·σ·C·√(T·d)/L. What a bound allows, a cheat may spend in one direction.
"""

from __future__ import annotations

import math

from privacy.plan import DpTerms, TrainingTerms, VectorTerms
from privacy.secagg.validity.terms import encoded_bound_of

FAILURE_BITS = 40
"""An honest silo is refused by its own bound in at most one of 2^40 rounds."""
_ROUNDING = 1.0 + 2.0**-16
"""Training is in float32, which moves a model by up to 2^−24 of its length a step: covered for models up to
2^8/T times as long as the bound."""


def suggested_norm_bound(dp: DpTerms, training: TrainingTerms, parameters: int) -> float:
    """A norm that an honest silo's update stays within, with probability at least 1 − 2^−40.

    For silos whose expected sample, records times sample_rate, is at most dp.normaliser, and uniform weights.
    A silo with more records refuses when its update comes out longer; it never clips it to fit.
    """
    tail = (FAILURE_BITS + 1) * math.log(2)
    steps = training.local_steps
    mean = steps * dp.normaliser
    records = mean + tail / 3 + math.sqrt(tail * tail / 9 + 2 * tail * mean)
    noise = dp.own_noise_multiplier * math.sqrt(steps) * (math.sqrt(parameters) + math.sqrt(2 * tail))
    return training.learning_rate * dp.clip_l2 / dp.normaliser * (records + noise) * _ROUNDING


def least_coordinate_bound(norm_bound: float, vector: VectorTerms, parameters: int) -> float:
    """The smallest coordinate_bound with which a plan of that norm_bound is admitted (``terms_of``)."""
    return float(encoded_bound_of(norm_bound, vector.scale_bits, parameters) / 2.0**vector.scale_bits)
