"""Six ways to learn from four silos' records, from all in one place without DP to one silo alone with it.

Each takes the same public settings, the same number of private steps and noise calibrated to the same ε by
the accountant that ledgers charge by. All but the pooled ones are the simulator's federation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility_problems import SILOS, Problem
from privacy.dp.calibration import calibrated_noise
from privacy.plan import DpTerms, LocalTerms, ServerTerms, TrainingTerms, VectorTerms
from sealsum.simulator.alone import LOCAL, train_alone
from sealsum.simulator.federation import Federation
from sealsum.simulator.linear import LINEAR, LINEAR_LOCAL
from sealsum.simulator.plan import RoundTerms
from silo_agent.algorithms.catalogue import ALGORITHMS
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import initial_vector

DELTA = 1e-5
VECTOR = VectorTerms(coordinate_bound=64.0, scale_bits=22)
"""Room for several long local steps."""
ONE_STEP = VectorTerms(coordinate_bound=4.0, scale_bits=26)
"""Room for the mean of a step, noise included, on a grid whose rounding takes next to nothing of the clip."""
ADAPTER = ADAPTERS["logistic"]

Method = Callable[[Problem, str, float], float]


@lru_cache(maxsize=64)
def noise(epsilon: float, sample_rate: float, steps: int) -> float:
    """σ at which the whole job costs ε."""
    return calibrated_noise(epsilon, DELTA, sample_rate, steps, "add_remove").noise_multiplier


def pooled_plain(problem: Problem, split: str, epsilon: float) -> float:
    """All records in one place, no DP: gradient descent on all of them, or on as many a step as is said."""
    recipe = problem.recipe
    batch = recipe.plain_batch
    training = TrainingTerms(
        algorithm="fedavg",
        local_steps=recipe.plain_steps,
        learning_rate=recipe.plain_rate,
        server_learning_rate=1.0,
        local=LocalTerms() if batch is None else LocalTerms(batch_size=batch),
    )
    terms = RoundTerms(problem.model, training, None, VECTOR)
    return problem.score(_alone(problem, terms, problem.train, 1))


def pooled_dp(problem: Problem, split: str, epsilon: float) -> float:
    """All records in one place: central DP-SGD."""
    terms = _terms(problem, epsilon, "dp_fedavg", len(problem.train), epsilon)
    return problem.score(_alone(problem, terms, problem.train, problem.recipe.steps))


def fedsgd(problem: Problem, split: str, epsilon: float, colluding: int) -> float:
    """``dp_fedsgd`` with noise in shares of K − t."""
    shares = SILOS - colluding
    # The sum holds K/(K − t) of the charged variance.
    effective = epsilon * math.sqrt(shares / SILOS)
    terms = _terms(problem, epsilon, "dp_fedsgd", len(problem.train) / SILOS, effective, shares)
    return problem.score(_federated(problem, terms, split, problem.recipe.steps))


def fedavg(problem: Problem, split: str, epsilon: float) -> float:
    """``dp_fedavg``: every silo's own DP-SGD, several steps a round."""
    recipe = problem.recipe
    terms = _terms(
        problem, epsilon, "dp_fedavg", len(problem.train) / SILOS, epsilon / 2, steps=recipe.local_steps
    )
    return problem.score(_federated(problem, terms, split, recipe.steps // recipe.local_steps))


def local_only(problem: Problem, split: str, epsilon: float) -> float:
    """Each silo alone with DP-SGD, scored on everybody's held-out records: the mean over silos."""
    scores = []
    for records in problem.silos(split).values():
        terms = _terms(problem, epsilon, "dp_fedavg", len(problem.train) / SILOS, epsilon / SILOS)
        scores.append(problem.score(_alone(problem, terms, records, problem.recipe.steps)))
    return float(np.mean(scores))


PLAIN: Final = "pooled, no DP"
POOLED: Final[dict[str, Method]] = {PLAIN: pooled_plain, "pooled DP-SGD": pooled_dp}
"""Whatever the split."""
SHARED: Final[dict[str, Method]] = {
    "dp_fedsgd, t = 0": lambda problem, split, epsilon: fedsgd(problem, split, epsilon, 0),
    "dp_fedsgd, t = 1": lambda problem, split, epsilon: fedsgd(problem, split, epsilon, 1),
    "dp_fedavg": fedavg,
    "local only": local_only,
}


def _alone(problem: Problem, terms: RoundTerms, records: Records, rounds: int) -> NDArray[np.float32]:
    """Linear models in closed form, others by the agent's own engine."""
    closed = problem.model.adapter == "logistic" and terms.training.local == LocalTerms()
    algorithms = LINEAR_LOCAL if closed else LOCAL
    adapter = ADAPTERS[problem.model.adapter]
    return train_alone(terms, adapter, records, _first(problem), rounds, algorithms)


def _federated(problem: Problem, terms: RoundTerms, split: str, rounds: int) -> NDArray[np.float32]:
    algorithms = LINEAR if problem.model.adapter == "logistic" else ALGORITHMS
    adapter = ADAPTERS[problem.model.adapter]
    federation = Federation(terms, adapter, problem.silos(split), rounds, algorithms=algorithms)
    return federation.train(_first(problem))


def _terms(
    problem: Problem,
    epsilon: float,
    algorithm: Literal["dp_fedavg", "dp_fedsgd"],
    records: float,
    effective: float,
    shares: int | None = None,
    steps: int = 1,
) -> RoundTerms:
    """Terms of a job in which a step's sum is divided by the public number of ``records`` that a step draws.

    With one step a round the server holds the learning rate, and averages the second half of the job; with
    several each silo does.
    """
    recipe = problem.recipe
    rate, rounds = recipe.rate(effective), recipe.steps // steps
    training = TrainingTerms(
        algorithm=algorithm,
        local_steps=steps,
        learning_rate=1.0 if steps == 1 else rate,
        server_learning_rate=rate if steps == 1 else 1.0,
        server=ServerTerms(tail_rounds=rounds // 2),
    )
    dp = DpTerms(
        model="local" if shares is None else "distributed",
        noise_shares=shares,
        unit="record",
        sample_rate=recipe.sample_rate,
        noise_multiplier=noise(epsilon, recipe.sample_rate, recipe.steps),
        clip_l2=recipe.clip,
        normaliser=recipe.sample_rate * records,
        delta=DELTA,
    )
    vector = ONE_STEP if algorithm == "dp_fedsgd" else VECTOR
    return RoundTerms(problem.model, training, dp, vector)


def _first(problem: Problem) -> NDArray[np.float32]:
    return initial_vector(problem.model, 0)
