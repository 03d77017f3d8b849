"""How accurate a model gets, by where the noise is added: four silos against all records in one place.

    python benchmarks/utility.py [--dataset digits|breast_cancer|heart|mnist|mnist_cnn …] [--seeds 4]
                                 [--epsilon 1 …] [--method "dp_fedsgd, t = 0" …] [--json] [--out FILE]
                                 [--scores FILE] [--plot FILE]

Splits are by seed; sampling and noise come from the operating system, as at a silo. Models are linear on the
data's own columns or fixed features, updates are the simulator's closed form, the sum is on the real grid.
Without --dataset, those that need no download. MNIST: SEALSUM_DATA names a folder with mnist/mnist.npz, of
arrays train_images, train_labels, test_images and test_labels.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:  # run as a file; opacus installs a package of this name, which would be found first
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.utility_methods import DELTA, PLAIN, POOLED, SHARED, SILOS
from benchmarks.utility_plot import HARDEST, plot
from benchmarks.utility_problems import PROBLEMS, SPLITS

EPSILONS = (1.0, 3.0, 8.0)
WITHOUT_DOWNLOAD = ("digits", "breast_cancer", "heart")
WHEREVER = "pooled"


@dataclass(frozen=True)
class Cell:
    """One score: what is measured, and on which split of the data."""

    dataset: str
    seed: int
    method: str
    split: str
    epsilon: float | None


def cells(
    dataset: str, seeds: int, epsilons: list[float], splits: list[str], methods: list[str]
) -> Iterator[Cell]:
    """What these options ask for, seed by seed, the hardest split first: who stops early has whole seeds."""
    for seed in range(seeds):
        for method in [method for method in POOLED if method in methods]:
            for epsilon in [None] if method == PLAIN else epsilons:
                yield Cell(dataset, seed, method, WHEREVER, epsilon)
        for split in [split for split in HARDEST if split in splits and split in SPLITS[dataset]]:
            for method in [method for method in SHARED if method in methods]:
                for epsilon in epsilons:
                    yield Cell(dataset, seed, method, split, epsilon)


def measure(wanted: Iterator[Cell], kept: Path | None = None) -> dict[Cell, float]:
    """The score of each cell.

    Args:
        kept: a file of scores, one a line: those in it are not measured again, and each new one is added as
            soon as it is there.
    """
    scores: dict[Cell, float] = {}
    known = _read(kept) if kept is not None and kept.exists() else {}
    problem: tuple[str, int] | None = None
    for cell in wanted:
        if cell in known:
            scores[cell] = known[cell]
            continue
        if problem != (cell.dataset, cell.seed):
            problem = (cell.dataset, cell.seed)
            made = PROBLEMS[cell.dataset](cell.seed)
        method = {**POOLED, **SHARED}[cell.method]
        scores[cell] = method(made, cell.split, cell.epsilon or 0.0)
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(cell) | {"score": scores[cell]}) + "\n")
    return scores


def _read(kept: Path) -> dict[Cell, float]:
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    return {Cell(**{key: line[key] for key in line if key != "score"}): line["score"] for line in lines}


def rows_of(scores: dict[Cell, float]) -> list[dict[str, Any]]:
    """One row a dataset, method, split and ε, with a score for each seed."""
    by_row: dict[tuple[str, str, str, float | None], list[float]] = {}
    for cell, score in sorted(scores.items(), key=lambda item: item[0].seed):
        by_row.setdefault((cell.dataset, cell.method, cell.split, cell.epsilon), []).append(score)
    return [
        {
            "dataset": dataset,
            "metric": "AUC" if dataset == "heart" else "accuracy",
            "method": method,
            "split": split,
            "epsilon": epsilon,
            "mean": float(np.mean(values)),
            "spread": float(np.std(values)),
            "scores": values,
        }
        for (dataset, method, split, epsilon), values in by_row.items()
    ]


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
    parser.add_argument(
        "--scores", type=Path, help="scores one by one: who is interrupted goes on from there"
    )
    parser.add_argument("--out", type=Path, help="write the result here; datasets measured before are kept")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    asked = (options.seeds, options.epsilon, options.split, options.method)
    wanted = chain.from_iterable(cells(dataset, *asked) for dataset in options.dataset)
    rows = rows_of(measure(wanted, options.scores))
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
