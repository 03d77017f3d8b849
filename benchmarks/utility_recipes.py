"""What each recipe of docs/recipes.md is worth on 1,438 digits: central DP-SGD, a linear model, ε given.

    python benchmarks/utility_recipes.py [--epsilon 3] [--seeds 8] [--json]

``dp_fedsgd`` without colluding silos opens the same sums, so this is what it gets, whatever the split.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.datasets import load_digits

if not __package__:  # run as a file; opacus installs a package of this name, which would be found first
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.utility_methods import ADAPTER, DELTA, VECTOR, noise
from benchmarks.utility_problems import Problem, digits, rows
from privacy.fixed_features import OrientedGradients
from privacy.plan import DpTerms, ServerTerms, TrainingTerms
from sealsum.simulator.alone import train_alone
from sealsum.simulator.linear import LINEAR_LOCAL
from sealsum.simulator.plan import RoundTerms
from silo_agent.data.records import Records
from silo_agent.features.catalogue import GRADIENTS_LENGTH, fixed_features
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.randomness import gaussian

SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))


def trained(problem: Problem, epsilon: float, server: ServerTerms, rate: float, clip: float = 1.0) -> float:
    """Score of central DP-SGD under these server terms."""
    recipe = problem.recipe
    training = TrainingTerms(
        algorithm="dp_fedavg",
        local_steps=1,
        learning_rate=1.0,
        server_learning_rate=rate,
        server=server,
    )
    dp = DpTerms(
        unit="record",
        sample_rate=recipe.sample_rate,
        noise_multiplier=noise(epsilon, recipe.sample_rate, recipe.steps),
        clip_l2=clip,
        normaliser=recipe.sample_rate * len(problem.train),
        delta=DELTA,
    )
    terms = RoundTerms(problem.model, training, dp, VECTOR)
    start = initial_vector(problem.model, 0)
    return problem.score(train_alone(terms, ADAPTER, problem.train, start, recipe.steps, LINEAR_LOCAL))


def on_pixels(seed: int) -> Problem:
    """The same split on the pixels themselves, brought to the same length."""
    bunch = load_digits()
    pixels = bunch.data / np.linalg.norm(bunch.data, axis=1, keepdims=True) - 0.8 / 8
    return _with_features(seed, (GRADIENTS_LENGTH * pixels).astype(np.float32))


def short(seed: int) -> Problem:
    """The same features at a quarter of their length, beside a bias of 1."""
    problem = digits(seed)
    shorter = [Records(one.features / 4, one.labels, classes=10) for one in (problem.train, problem.test)]
    return replace(problem, train=shorter[0], test=shorter[1])


def augmented(seed: int, epsilon: float) -> float:
    """Five shifts of each image, their gradients averaged by record before clipping (De et al. 2022)."""
    problem, bunch = digits(seed), load_digits()
    steps, rate = problem.recipe.steps, problem.recipe.rate(epsilon)
    order = np.random.default_rng(seed).permutation(len(bunch.target))[len(problem.test) :]
    views = [
        fixed_features(OrientedGradients(rows=8, columns=8), _shifted(bunch.images[order], *shift))
        for shift in SHIFTS
    ]
    ones = np.ones((len(order), 1), dtype=np.float32)
    inputs = np.stack([np.hstack([view, ones]) for view in views], axis=1)
    labels = np.eye(10)[bunch.target[order]][:, None]
    deviation = noise(epsilon, 1.0, steps)
    weights = np.zeros((10, inputs.shape[2]))
    total = np.zeros_like(weights)
    for step in range(steps):
        errors = softmax(inputs @ weights.T, axis=2) - labels
        gradients = np.einsum("nak,nad->nkd", errors, inputs) / len(SHIFTS)
        norms = np.sqrt(np.square(gradients).sum((1, 2)))
        summed = np.tensordot(1 / np.maximum(norms, 1.0), gradients, 1)
        weights -= rate / len(order) * (summed + gaussian(weights.size, deviation).reshape(weights.shape))
        if step >= steps // 2:
            total += weights
    mean = total / (steps - steps // 2)
    return problem.score(np.concatenate([mean[:, :-1].ravel(), mean[:, -1]]).astype(np.float32))


def measured(epsilon: float, seeds: int) -> dict[str, list[float]]:
    """Recipe → scores, one a seed."""
    half = ServerTerms(tail_rounds=30)
    scores: dict[str, list[float]] = {}
    for seed in range(seeds):
        problem = digits(seed)
        rate = problem.recipe.rate(epsilon)
        runs = {
            "gradients, long, tail average": trained(problem, epsilon, half, rate),
            "no average": trained(problem, epsilon, ServerTerms(), rate),
            "moving average 0.9": trained(problem, epsilon, ServerTerms(ema_decay=0.9), rate),
            "momentum 0.9, rate / 10": trained(
                problem, epsilon, ServerTerms(tail_rounds=30, momentum=0.9), rate / 10
            ),
            "Adam, rate 0.3": trained(problem, epsilon, ServerTerms(optimizer="adam", tail_rounds=30), 0.3),
            "cosine schedule": trained(
                problem, epsilon, ServerTerms(tail_rounds=30, schedule="cosine"), rate
            ),
            "features a quarter as long": trained(short(seed), epsilon, half, 4 * rate),
            "pixels": trained(on_pixels(seed), epsilon, half, rate),
            "five shifts a record": augmented(seed, epsilon),
        }
        for name, score in runs.items():
            scores.setdefault(name, []).append(score)
    return scores


def _with_features(seed: int, features: NDArray[np.float32]) -> Problem:
    problem, bunch = digits(seed), load_digits()
    records = Records(features, bunch.target.astype(np.float32), classes=10)
    order = np.random.default_rng(seed).permutation(len(records))
    cut = len(problem.test)
    model = model_terms("logistic", features.shape[1], (), 10)
    return replace(problem, model=model, train=rows(records, order[cut:]), test=rows(records, order[:cut]))


def _shifted(images: NDArray[np.float64], down: int, along: int) -> NDArray[np.float32]:
    bordered = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    moved = bordered[:, 1 + down : 9 + down, 1 + along : 9 + along]
    return (moved.reshape(len(images), -1) / 8.0 - 1.0).astype(np.float32)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scores = measured(options.epsilon, options.seeds)
    if options.json:
        print(json.dumps({"epsilon": options.epsilon, "scores": scores}, indent=1))
        return
    for name, values in scores.items():
        print(f"{name:32}{np.mean(values):6.1f} ± {np.std(values):.1f}")


if __name__ == "__main__":
    main()
