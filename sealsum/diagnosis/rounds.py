"""What a few rounds of FedAvg in memory say: do updates agree, whom does it serve, does it beat going alone?
alone?

The cosine is computed from the sum of unit updates, as a federation would have to: of n unit vectors with sum
s, the mean over pairs is (‖s‖² − n) / (n(n − 1)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.ids import SiloId
from sealsum.comparison.report import spread
from sealsum.comparison.runs import LOCAL, POOLED, federation_of, first_model, job_under, trained_alone
from sealsum.job_file import JobFile
from sealsum.simulator.gathered import Gathered, joined
from sealsum.simulator.practice import Practice
from sealsum.simulator.scored import FigureName, Scored, score
from silo_agent.models.adapters import ADAPTERS
from silo_agent.update import GridUpdate, Update

FEDERATED: Final = "federated"
PERSONAL: Final = "personal"
LOOKED_AT: Final = 5
"""Rounds whose updates are compared: later ones of a model that fits everybody are mostly noise."""
FINE_TUNING_ROUNDS: Final = 3
"""Rounds' worth of a silo's own steps that make the federated model a personal one."""
Tree: TypeAlias = dict[str, Any]


def mean_pairwise_cosine(total: NDArray[np.float64], count: int) -> float:
    """Over the pairs of ``count`` unit vectors whose sum is ``total``, float64[d]."""
    if count < 2:
        raise ConfigurationError(f"cosine: expected two silos or more, got {count}")
    return float((total @ total - count) / (count * (count - 1)))


def unit(update: Update) -> NDArray[np.float64]:
    """An update's direction, float64[d]; zeros for one that moves nothing."""
    values = update.steps if isinstance(update, GridUpdate) else update.values.astype(np.float64)
    length = float(np.linalg.norm(values))
    return values / length if length > 0 else np.zeros(len(values))


def rounds_report(tree: Tree, records: Gathered, seeds: int, threshold: float) -> Tree:
    """Figures of FedAvg, of each silo alone, of all records pooled, and of a personal model, over seeds.

    Args:
        threshold: of the first figure: how many silos are served worse is told.

    Raises:
        ConfigurationError: the job has DP or cannot be FedAvg. Unprocessable: training diverged.
    """
    if tree.get("dp", "none") != "none":
        raise ConfigurationError(
            "dp: expected none to compare updates (noise would hide how they agree); write dp: none in "
            "the job that is diagnosed"
        )
    job = job_under(tree, "fedavg")
    runs, cosines = [], []
    for seed in range(seeds):
        run, found = _run(job, records.parted(seed), seed)
        runs.append(run)
        cosines.append(found)
    first = next(iter(runs[0][FEDERATED]))
    below = [run[FEDERATED][first].share_below(threshold) for run in runs]
    return {
        "rounds": job.rounds,
        "local_steps": job.training.local_steps,
        "seeds": seeds,
        "cosine": {
            "mean": spread(float(np.mean(found)) for found in cosines),
            "by_round": [float(f"{one:.4g}") for one in np.mean(cosines, axis=0)],
        },
        "figures": {name: _figure(name, runs) for name in runs[0][FEDERATED]},
        "served_below": {"figure": first, "threshold": threshold, "share_of_silos": spread(below)},
    }


def _run(
    job: JobFile, parted: Mapping[SiloId, Practice], seed: int
) -> tuple[dict[str, dict[FigureName, Scored]], list[float]]:
    training = {silo: one.training for silo, one in parted.items()}
    held_out = {silo: one.held_out for silo, one in parted.items()}
    federation = federation_of(job, training)
    standing, cosines = federation.at(first_model(job, seed)), []
    for number in range(job.rounds):
        if number < LOOKED_AT:
            units = [unit(federation.update_of(silo, standing.model)) for silo in training]
            cosines.append(mean_pairwise_cosine(np.sum(units, axis=0), len(units)))
        standing = federation.after_round(standing)
    tuned = job.model_copy(update={"rounds": FINE_TUNING_ROUNDS})
    models = {
        POOLED: dict.fromkeys(training, trained_alone(job, joined(list(training.values())), seed)),
        LOCAL: {silo: trained_alone(job, own, seed) for silo, own in training.items()},
        FEDERATED: dict.fromkeys(training, standing.model),
        PERSONAL: {
            silo: trained_alone(tuned, own, seed, start=standing.model) for silo, own in training.items()
        },
    }
    adapter, terms = ADAPTERS[job.model.adapter], job.terms()
    return {name: score(adapter, terms, own, held_out) for name, own in models.items()}, cosines


def _figure(name: FigureName, runs: Sequence[Mapping[str, Mapping[FigureName, Scored]]]) -> Tree:
    """Means over silos, and the gains that a silo has on average, with their error over seeds."""
    found: Tree = {}
    for model in (POOLED, LOCAL, FEDERATED, PERSONAL):
        scored = [run[model][name] for run in runs]
        found[model] = {
            "mean_over_silos": spread(one.mean for one in scored),
            "worst_silo": spread(one.worst for one in scored),
            "variance_between_silos": spread(one.variance for one in scored),
            "by_silo": {
                silo: spread(one.by_silo[silo] for one in scored if silo in one.by_silo)
                for silo in dict.fromkeys(silo for one in scored for silo in one.by_silo)
            },
        }
    for better, than in ((FEDERATED, LOCAL), (PERSONAL, LOCAL), (PERSONAL, FEDERATED), (POOLED, LOCAL)):
        gains = [run[better][name].mean - run[than][name].mean for run in runs]
        found[f"{better}_over_{than}"] = spread(gains) | {
            "standard_error": float(f"{np.std(gains, ddof=1) / np.sqrt(len(gains)):.4g}")
            if len(gains) > 1
            else 0.0
        }
    return found
