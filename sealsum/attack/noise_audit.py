"""Is the noise there that ε claims? Canaries against the claim, and against mechanisms broken in known ways.

Each broken arm is a mistake somebody could make: it must be seen, or a sound arm's passing means nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from privacy.dp.accountant import epsilon, full_batch_epsilon
from privacy.dp.events import DpEvent
from privacy.plan import DpTerms
from sealsum.attack.bounds import Scores, correct_guesses, gaussian_mu, one_run_epsilon
from sealsum.attack.canaries import SumTerms, scores_of_sums, scores_of_updates
from sealsum.attack.cohort import DELTA, NO_NOISE, private_step
from sealsum.attack.effort import Effort
from sealsum.attack.outcome import Findings, Outcome

ERROR: Final = 1e-5
"""Probability, at most, with which a sound mechanism fails one of these tests."""
ONE_RUN_DELTA: Final = 1e-11
"""The one-run bound pays 2mδ: at 1e-5 no certificate of this error rate is left."""
USUAL_ERROR: Final = 0.05
"""At which articles state one-run bounds; for comparison only."""
_SILOS, _COLLUDING, _NOISE, _CLIP = 4, 1, 1.0, 1.0
_HONEST = _SILOS - _COLLUDING
_LOCAL_STEPS, _LOCAL_NOISE = 16, 4.0
_MOST_SHOWN: Final = 1000.0
_FEW_GUESSES: Final = 25
"""One of so many canaries is guessed where noise is expected; all are where none is."""


@dataclass(frozen=True)
class Arm:
    """A mechanism that claims ε of σ = 1 and clip norm 1, whatever it does."""

    protection: str
    protected: bool
    shares: int
    noise: float = _NOISE
    clip: float = _CLIP
    silent: int = 0

    @property
    def terms(self) -> SumTerms:
        """As canaries are run."""
        return SumTerms(
            dp=private_step(self.noise, self.clip, self.shares),
            silos=_SILOS,
            colluding=_COLLUDING,
            silent=self.silent,
            silent_dp=private_step(NO_NOISE, self.clip, self.shares),
        )


SOUND: Final = Arm("noise shares of σ/√(K − t), as planned", True, _HONEST)
NOISELESS: Final = Arm("secure sum alone, no noise", False, _HONEST, noise=NO_NOISE)
ARMS: Final = (
    SOUND,
    Arm("shares of σ/√K, though one silo colludes", False, _SILOS),
    Arm("shares of σ/K", False, _SILOS**2),
    Arm("σ short by √2", False, _HONEST, noise=_NOISE / math.sqrt(2)),
    Arm("one honest silo adds no noise", False, _HONEST, silent=1),
    Arm("gradients clipped to 2 C", False, _HONEST, noise=_NOISE / 2, clip=2 * _CLIP),
    NOISELESS,
)


def audit_sums(effort: Effort) -> Findings:
    """Both bounds on sums of ``dp_fedsgd``: four silos, one of which colludes."""
    outcomes = []
    for arm in ARMS:
        scores = scores_of_sums(arm.terms, effort.canary_runs)
        outcomes.append(
            model_outcome("canaries, opened sum", arm.protection, arm.protected, scores, _claim())
        )
        if arm in (SOUND, NOISELESS):
            outcomes.append(certified_outcome(arm, scores))
    return Findings(tuple(outcomes))


def audit_updates(effort: Effort) -> Findings:
    """One silo's bare update under ``dp_fedavg``: its own noise has to carry the claim."""
    events = [DpEvent(sample_rate=1.0, noise_multiplier=_LOCAL_NOISE, steps=_LOCAL_STEPS)]
    claim = epsilon(events, DELTA)
    outcomes = []
    for protection, protected, noise in (
        ("each of 16 local steps adds σC", True, _LOCAL_NOISE),
        ("σ short by √2 in each of 16 local steps", False, _LOCAL_NOISE / math.sqrt(2)),
    ):
        scores = scores_of_updates(_local(noise), _LOCAL_STEPS, effort.update_runs)
        outcomes.append(model_outcome("canaries, bare update", protection, protected, scores, claim))
    return Findings(tuple(outcomes))


def model_outcome(attack: str, protection: str, protected: bool, scores: Scores, claim: float) -> Outcome:
    """Hold the bound of the Gaussian model against a claim of ε at ``DELTA``."""
    bound = gaussian_mu(scores, ERROR)
    least = full_batch_epsilon(bound.at_least, DELTA) if bound.at_least > 0 else 0.0
    return Outcome(
        attack=attack,
        protection=protection,
        protected=protected,
        succeeded=least > claim,
        measured=f"ε {_shown(least)} (Gaussian model)",
        expected=f"claim ε = {claim:.2f} at δ = {DELTA:g}",
        figures={
            "epsilon_at_least": least,
            "epsilon_claimed": claim,
            "mu_estimate": bound.estimate,
            "mu_at_least": bound.at_least,
            "canaries": len(scores),
            "error_rate": ERROR,
        },
    )


def certified_outcome(arm: Arm, scores: Scores) -> Outcome:
    """Hold the one-run bound against the claim at a δ that leaves it any force.

    Two numbers of guesses are fixed beforehand, each with half of the error rate.
    """
    claim = _claim(ONE_RUN_DELTA)
    few = len(scores) // _FEW_GUESSES
    least = max(_certified(scores, guesses, ERROR / 2, ONE_RUN_DELTA) for guesses in (few, len(scores)))
    return Outcome(
        attack="canaries, one run",
        protection=arm.protection,
        protected=arm.protected,
        succeeded=least > claim,
        measured=f"ε {_shown(least)} (certified)",
        expected=f"claim ε = {claim:.2f} at δ = {ONE_RUN_DELTA:g}",
        figures={
            "epsilon_at_least": least,
            "epsilon_claimed": claim,
            "delta": ONE_RUN_DELTA,
            "epsilon_at_least_95": _certified(scores, few, USUAL_ERROR, DELTA),
            "guesses": few,
            "correct": correct_guesses(scores, few),
            "canaries": len(scores),
            "error_rate": ERROR,
        },
    )


def _certified(scores: Scores, guesses: int, error: float, delta: float) -> float:
    return one_run_epsilon(len(scores), guesses, correct_guesses(scores, guesses), error, delta)


def _shown(least: float) -> str:
    return f"≥ {least:.2f}" if least < _MOST_SHOWN else f"> {_MOST_SHOWN:g}"


def _claim(delta: float = DELTA) -> float:
    """What the platform's own accountant says of one step of σ = 1."""
    return epsilon([DpEvent(sample_rate=1.0, noise_multiplier=_NOISE, steps=1)], delta)


def _local(noise: float) -> DpTerms:
    return private_step(noise, _CLIP, model="local")
