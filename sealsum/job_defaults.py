"""What a job file may leave out, filled in before it is read: the algorithm, and the noise for a target ε.

What an algorithm's name stands for is in ``sealsum.algorithms``. ``dp.target_epsilon``
stands for the noise at which the whole job costs at most that, by the accountant that ledgers charge by.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, Real
from privacy.dp.calibration import calibrated_noise
from privacy.dp.grid import noise_at, tick_at_or_above
from privacy.plan import Count, Fraction
from privacy.vector_terms import MetricTerms
from sealsum.algorithms import training_of
from sealsum.yaml_file import faults_of


class _Schedule(Frozen):
    """What decides the noise for a target."""

    target_epsilon: Annotated[Real, Field(gt=0)]
    delta: Annotated[Real, Field(gt=0, lt=1)]
    sample_rate: Fraction
    rounds: Count
    local_steps: Count


def with_defaults(tree: object) -> object:
    """A job file's tree with what it left out; what is wrong in it stays for the model to tell.

    Raises:
        ValueError: an unknown algorithm; a target ε beside the noise, or without a whole schedule; neither.
        ConfigurationError: no noise meets the target.
    """
    if not isinstance(tree, dict) or not isinstance(tree.get("training"), dict):
        return tree
    dp = tree.get("dp")
    training = training_of(tree["training"], dp != "none")
    filled = tree | {"training": training}
    if isinstance(dp, dict) and not {"noise_multiplier", "target_epsilon"} & set(dp):
        raise ValueError("dp: expected noise_multiplier, or target_epsilon for it; got neither; add one")
    if isinstance(dp, dict) and "target_epsilon" in dp:
        filled["dp"] = _calibrated(dp, tree.get("rounds"), training.get("local_steps"))
    return filled


def _calibrated(dp: dict[str, Any], rounds: object, local_steps: object) -> dict[str, Any]:
    if "noise_multiplier" in dp:
        raise ValueError("dp: expected noise_multiplier or target_epsilon, got both")
    fields = {name: dp[name] for name in ("target_epsilon", "delta", "sample_rate") if name in dp}
    try:
        asked = _Schedule.model_validate(fields | {"rounds": rounds, "local_steps": local_steps})
    except ValidationError as error:
        wrong = "; ".join(line.strip() for line in faults_of(error).splitlines())
        raise ValueError(
            f"dp.target_epsilon: expected a whole schedule to find the noise for; {wrong}"
        ) from error
    steps = asked.rounds * asked.local_steps
    found = calibrated_noise(asked.target_epsilon, asked.delta, asked.sample_rate, steps, "add_remove")
    kept = {name: value for name, value in dp.items() if name != "target_epsilon"}
    return kept | {"noise_multiplier": _beside_metrics(found.noise_multiplier, dp.get("metrics"))}


def _beside_metrics(whole: float, metrics: object) -> float:
    """σ₁ of the gradient at which (σ₁⁻² + σ₂⁻²)^(−1/2) is not below ``whole``, metrics having σ₂.

    Raises:
        ValueError: metrics alone, at that noise, cost all of the target.
    """
    if metrics is None:
        return whole
    try:
        second = MetricTerms.model_validate(metrics).noise_multiplier
    except ValidationError:
        return whole  # what is wrong in them is for the model to tell
    if second <= whole:
        raise ValueError(
            f"dp.metrics.noise_multiplier: expected more than {whole:g}, or nothing of the target "
            "is left for the gradient"
        )
    return noise_at(tick_at_or_above(whole / math.sqrt(1 - (whole / second) ** 2)))
