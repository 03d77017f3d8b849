"""How accurate a model gets, by where the noise is added: four silos against all records in one place.

    python benchmarks/utility.py [--dataset digits|breast_cancer|heart|mnist|mnist_cnn …] [--seeds 4]
                                 [--epsilon 1 …] [--method "dp_fedsgd, t = 0" …] [--json] [--out FILE]
                                 [--plot FILE]

Splits are by seed; sampling and noise come from the operating system, as at a silo. Models are linear on the
data's own columns or fixed features, updates are the simulator's closed form, the sum is on the real grid.
Without --dataset, those that need no download. MNIST: SEALSUM_DATA names a folder with mnist/mnist.npz, of
arrays train_images, train_labels, test_images and test_labels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.utility_methods import DELTA, POOLED, SHARED, SILOS, Method
from benchmarks.utility_plot import plot
from benchmarks.utility_problems import PROBLEMS

EPSILONS = (1.0, 3.0, 8.0)
WITHOUT_DOWNLOAD = ("digits", "breast_cancer", "heart")
WHEREVER = "pooled"


def measure(
    dataset: str, seeds: int, epsilons: list[float], splits: list[str], methods: list[str]
) -> list[dict[str, Any]]:
    """These methods' scores, one a seed, for each split and ε."""
    scores: dict[tuple[str, str, float | None], list[float]] = {}
    metric = ""
    for seed in range(seeds):
        problem = PROBLEMS[dataset](seed)
        metric = problem.metric
        for name, method in _chosen(POOLED, methods):
            for epsilon in [None] if name == "pooled, no DP" else epsilons:
                score = method(problem, WHEREVER, epsilon or 0.0)
                scores.setdefault((name, WHEREVER, epsilon), []).append(score)
        for split in [split for split in problem.splits if split in splits]:
            for name, method in _chosen(SHARED, methods):
                for epsilon in epsilons:
                    scores.setdefault((name, split, epsilon), []).append(method(problem, split, epsilon))
    return [
        {
            "dataset": dataset,
            "metric": metric,
            "method": name,
            "split": split,
            "epsilon": epsilon,
            "mean": float(np.mean(values)),
            "spread": float(np.std(values)),
            "scores": values,
        }
        for (name, split, epsilon), values in scores.items()
    ]


def _chosen(table: dict[str, Method], methods: list[str]) -> list[tuple[str, Method]]:
    return [(name, method) for name, method in table.items() if name in methods]


def gaps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By how many points ``dp_fedsgd`` without colluding silos stays behind central DP-SGD at equal ε."""
    central = {
        (row["dataset"], row["epsilon"]): row["mean"] for row in rows if row["method"] == "pooled DP-SGD"
    }
    return [
        {
            "dataset": row["dataset"],
            "split": row["split"],
            "epsilon": row["epsilon"],
            "gap": central[row["dataset"], row["epsilon"]] - row["mean"],
        }
        for row in rows
        if row["method"] == "dp_fedsgd, t = 0"
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """One line a dataset, method and split; a column for each ε."""
    lines: dict[tuple[str, str, str], dict[float | None, str]] = {}
    for row in rows:
        cell = f"{row['mean']:.1f} ± {row['spread']:.1f}"
        lines.setdefault((row["dataset"], row["method"], row["split"]), {})[row["epsilon"]] = cell
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    head = f"{'dataset':14}{'method':18}{'split':12}" + "".join(f"{f'ε = {one:g}':>14}" for one in epsilons)
    body = [
        f"{dataset:14}{method:18}{split:12}"
        + "".join(f"{cells.get(epsilon, cells.get(None, '')):>14}" for epsilon in epsilons)
        for (dataset, method, split), cells in lines.items()
    ]
    return "\n".join([head, *body])


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", nargs="+", choices=list(PROBLEMS), default=list(WITHOUT_DOWNLOAD))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument(
        "--split", nargs="+", default=["IID", "label skew", "natural"], help="those that a dataset has"
    )
    parser.add_argument("--method", nargs="+", choices=[*POOLED, *SHARED], default=[*POOLED, *SHARED])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="write the result here; datasets measured before are kept")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for dataset in options.dataset:
        rows += measure(dataset, options.seeds, options.epsilon, options.split, options.method)
    if options.out is not None and options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in before if row["dataset"] not in options.dataset] + rows
    result = {"silos": SILOS, "delta": DELTA, "rows": rows, "gaps": gaps(rows)}
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.plot is not None:
        plot(result, options.plot)
    print(json.dumps(result, indent=1) if options.json else table(rows))


if __name__ == "__main__":
    main()
