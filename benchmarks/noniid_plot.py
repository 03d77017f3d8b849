"""The non-IID benchmark's picture: score by round, a panel for each partition, the mean over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.noniid_cells import SeedRun


def plot(dataset: str, runs: Mapping[str, Mapping[str, list[SeedRun]]], path: Path) -> None:
    """A line an algorithm."""
    figure = Figure(figsize=(3.8 * max(len(runs), 1), 3.8), layout="constrained")
    panels = figure.subplots(1, max(len(runs), 1), squeeze=False)[0]
    for axes, (partition, by_algorithm) in zip(panels, runs.items(), strict=False):
        for algorithm, found in by_algorithm.items():
            rounds = [number for number in found[0].curve if all(number in one.curve for one in found)]
            means = [np.mean([one.curve[number] for one in found]) for number in rounds]
            axes.plot([int(number) for number in rounds], means, linewidth=1.2, label=algorithm)
        tops = [one.final for found in by_algorithm.values() for one in found]
        highest = max(max(one.curve.values()) for found in by_algorithm.values() for one in found)
        axes.set_ylim(bottom=max(0.0, min(tops) - 12), top=min(100.0, highest + 1))
        axes.set_title(partition, fontsize=10)
        axes.set_xlabel("round")
        axes.set_ylabel("% of variance explained" if partition == "stores" else "% right")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=6, frameon=False, loc="lower right")
    figure.suptitle(f"four silos; {dataset}, hospitals, made-up stores", fontsize=10)
    figure.savefig(path, dpi=150)
