"""How algorithms do when silos hold different records: four silos, one partition and one algorithm a cell.

    python benchmarks/noniid.py [--json] [--quick] [--only PARTITION:ALGORITHM …] [--seeds 3] [--write]

Each cell runs the silo's half, the sum on the job's grid and the server's half of the product. A cell is
kept, with its recipe, under benchmarks/results/noniid/ as soon as a seed of it is there, and is not run
again; without --only, what is kept is shown and nothing is run. --quick runs three rounds of 200 records a
silo and keeps nothing. --write puts table and picture of what is kept into docs/noniid.md. Images are MNIST
where SEALSUM_DATA names a folder with mnist/mnist.npz, else scikit-learn's digits; four hospitals are as
FLamby splits them; stores are made up. Batches are drawn by the operating system's randomness, so figures
differ a little from run to run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if not __package__:  # run as a file; opacus installs a package of this name, which would be found first
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.noniid_cells import TARGETS, Cell, SeedRun, rounds_to, run
from benchmarks.noniid_grounds import ONE_SEED, PARTITIONS, DatasetName, dataset_here, few
from benchmarks.noniid_plot import plot
from benchmarks.noniid_recipes import RECIPES, quick
from benchmarks.personal import PUBLISHED
from privacy.errors import ConfigurationError

RESULTS: Final = Path(__file__).parent / "results" / "noniid"
DOCUMENT: Final = Path(__file__).parent.parent / "docs" / "noniid.md"
PICTURE: Final = DOCUMENT.with_suffix(".png")
QUICK_RECORDS: Final = 200
Runs = dict[str, dict[str, list[SeedRun]]]
"""Partition → algorithm → one for each seed."""


def cell_of(dataset: DatasetName, partition: str, algorithm: str) -> Cell:
    """A cell and the file that keeps it; hospitals and stores are the same whatever the images are."""
    folder = "tables" if partition in ("hospitals", "stores") else dataset
    return Cell(partition, algorithm, RESULTS / folder / f"{partition}_{algorithm}.json")


def asked_for(text: str) -> tuple[str, str]:
    """PARTITION:ALGORITHM.

    Raises:
        ArgumentTypeError: there is no such cell; it says which there are.
    """
    partition, _, algorithm = text.partition(":")
    if partition not in RECIPES:
        raise argparse.ArgumentTypeError(f"expected a partition of {', '.join(RECIPES)}, got {partition!r}")
    if algorithm not in RECIPES[partition]:
        known = ", ".join(RECIPES[partition])
        raise argparse.ArgumentTypeError(f"{partition}: expected an algorithm of {known}, got {algorithm!r}")
    return partition, algorithm


def measured(
    dataset: DatasetName, asked: list[tuple[str, str]], seeds: int, quickly: bool, progress: Progress
) -> Runs:
    """Run what is not kept yet, seed by seed."""
    runs: Runs = {}
    for partition, algorithm in asked:
        recipe = RECIPES[partition][algorithm]
        recipe = quick(recipe) if quickly else recipe
        cell = cell_of(dataset, partition, algorithm)
        found = [] if quickly else cell.runs(recipe)
        for seed in range(1 if quickly or partition in ONE_SEED else seeds):
            if any(one.seed == seed for one in found):
                continue
            bar = progress.add_task(f"{partition}:{algorithm}, seed {seed}", total=recipe.rounds, score=0.0)
            ground = PARTITIONS[partition](dataset, recipe.network, seed)
            ground = few(ground, QUICK_RECORDS) if quickly else ground
            found.append(
                run(recipe, ground, seed, lambda score, bar=bar: progress.update(bar, advance=1, score=score))  # type: ignore[misc]
            )
            if not quickly:
                cell.keep(recipe, found)
        runs.setdefault(partition, {})[algorithm] = sorted(found, key=lambda one: one.seed)
    return runs


def kept(dataset: DatasetName) -> Runs:
    """All cells that were measured under the recipes as they are now."""
    runs: Runs = {}
    for partition, recipes in RECIPES.items():
        for algorithm, recipe in recipes.items():
            if found := cell_of(dataset, partition, algorithm).runs(recipe):
                runs.setdefault(partition, {})[algorithm] = found
    return runs


def result(dataset: DatasetName, runs: Runs) -> dict[str, Any]:
    """Means over seeds, in percent; ``rounds_to`` is of the slowest seed, ``null`` where one never got there.

    Of ``hospitals``, ``final`` is the mean accuracy over hospitals. Of ``stores`` it is the mean over stores
    of the variance that is explained, and ``worst_class`` that of the worst store.
    """
    return {
        "dataset": dataset,
        "partitions": {
            partition: {algorithm: summary(found) for algorithm, found in by_algorithm.items()}
            for partition, by_algorithm in runs.items()
        },
    }


def summary(found: list[SeedRun]) -> dict[str, Any]:
    """One cell."""
    return {
        "final": float(np.mean([one.final for one in found])),
        "worst_class": float(np.mean([one.worst_class for one in found])),
        "rounds_to": {str(target): rounds_to(found, target) for target in TARGETS},
        "bytes_up_per_round": found[0].bytes_up_per_round,
        "seeds": [one.seed for one in found],
    }


def table(dataset: DatasetName, runs: Runs) -> str:
    """For people, as Markdown: also the spread over seeds and the variance between silos."""
    lines = []
    for partition, by_algorithm in runs.items():
        synthetic = " (synthetic; % of variance explained, worst store)" if partition == "stores" else ""
        lines += [
            f"**{partition}**{synthetic}",
            "",
            "| algorithm | final % | worst class | rounds to 95 / 97 / 98 % | between silos, points² "
            "| bytes up a round | seeds |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for algorithm, found in by_algorithm.items():
            lines.append(_row(algorithm, found))
        if partition == "hospitals":
            lines += [
                f"| FLamby: {name} | {100 * value:.1f} | | | | | |" for name, value in PUBLISHED.items()
            ]
        lines.append("")
    if not lines:
        return f"nothing measured yet on {dataset}: ask for cells with --only PARTITION:ALGORITHM"
    return "\n".join(lines).rstrip()


def _row(algorithm: str, found: list[SeedRun]) -> str:
    one = summary(found)
    finals = [run.final for run in found]
    spread = f" ± {np.std(finals):.2f}" if len(finals) > 1 else ""
    rounds = " / ".join("–" if number is None else str(number) for number in one["rounds_to"].values())
    between = np.mean([np.var(list(run.by_silo.values())) for run in found])
    ended = "; ended early" if any(run.failure for run in found) else ""
    return (
        f"| {algorithm}{ended} | {one['final']:.2f}{spread} | {one['worst_class']:.1f} | {rounds} "
        f"| {between:.2f} | {one['bytes_up_per_round']:,} | {len(found)} |"
    )


def filled(document: str, rows: str) -> str:
    """The document with what stands between its marks replaced."""
    before, _, rest = document.partition("<!-- cells:begin -->\n")
    _, _, after = rest.partition("<!-- cells:end -->")
    return f"{before}<!-- cells:begin -->\n{rows}\n<!-- cells:end -->{after}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", type=asked_for, metavar="PARTITION:ALGORITHM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="whether it runs, not how well")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="table and picture into docs/")
    options = parser.parse_args(arguments)
    dataset = dataset_here()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[score]:.1f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        every = [(partition, algorithm) for partition, recipes in RECIPES.items() for algorithm in recipes]
        asked = options.only or ([one for one in every if not one[1].endswith(("_cnn", "article"))])
        wanted = asked if options.only or options.quick else []
        try:
            runs = measured(dataset, wanted, options.seeds, options.quick, progress)
        except ConfigurationError as problem:
            parser.error(str(problem))
    runs = runs if wanted else kept(dataset)
    if options.write:
        DOCUMENT.write_text(
            filled(DOCUMENT.read_text(encoding="utf-8"), table(dataset, kept(dataset))), encoding="utf-8"
        )
        plot(dataset, kept(dataset), PICTURE)
    print(json.dumps(result(dataset, runs), indent=1) if options.json else table(dataset, runs))


if __name__ == "__main__":
    main()
