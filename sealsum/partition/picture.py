"""A split as a picture: which silo has how many records of which class, and what shifts. A door to
matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from sealsum.partition.measures import label_divergence
from sealsum.partition.splits import Partition, Table
from sealsum.queries.picture import COLOURS, INK, QUIET, STYLE

_MOST_CELLS = 120
"""More cells than that carry no numbers."""
ENDINGS = (".png", ".svg", ".pdf")


def save_split(table: Table, split: Partition, classes: tuple[str, ...], order: str, path: Path) -> None:
    """Write the picture; the ending says PNG, SVG or PDF.

    Args:
        order: what orders the records, drawn where the split goes by it.

    Raises:
        ConfigurationError: no such format.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ConfigurationError(f"{path}: expected a file that ends in {', '.join(ENDINGS)}")
    counts = split.counts(table)
    silos = len(counts)
    third = table.order is not None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12.6 if third else 9.2, 0.5 * max(silos, 4) + 1.7), layout="constrained")
        axes = figure.subplots(1, 3 if third else 2, width_ratios=[2.2, 1, 1.3] if third else [2.2, 1])
        _classes(axes[0], counts, classes, split)
        _sizes(axes[1], np.array(split.sizes))
        if table.order is not None:
            _along(axes[2], [table.order[rows] for rows in split.rows], order)
        figure.suptitle(_title(counts, split), fontsize=9, color=QUIET)
        figure.savefig(path, dpi=150, facecolor="white")


def _title(counts: NDArray[np.intp], split: Partition) -> str:
    asked = split.asked
    setting = {"dirichlet": f", α = {asked.alpha:g}", "quantity": f", α = {asked.alpha:g}"}
    setting["shards"] = f", {asked.shards} a silo"
    return (
        f"{asked.kind}{setting.get(asked.kind, '')}, seed {asked.seed}: label skew (JSD / log K) "
        f"{label_divergence(counts):.2f}"
    )


def _classes(axes: Axes, counts: NDArray[np.intp], classes: tuple[str, ...], split: Partition) -> None:
    shares = counts / counts.sum(axis=1, keepdims=True)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=max(1.0, 1.2 * shares.max()), aspect="auto")
    if counts.size <= _MOST_CELLS:
        for (silo, label), count in np.ndenumerate(counts):
            colour = "white" if shares[silo, label] > 0.6 else INK
            axes.text(label, silo, str(count), ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(classes)), classes)
    names = [
        f"silo {number + 1}" + (f", labels + {split.turned[number]}" if any(split.turned) else "")
        for number in range(len(counts))
    ]
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("records by class; shade: part of the silo", fontsize=10, loc="left")


def _sizes(axes: Axes, sizes: NDArray[np.intp]) -> None:
    places = range(len(sizes))
    axes.barh(places, sizes, 0.6, color=COLOURS[0], alpha=0.8)
    for place, size in zip(places, sizes, strict=True):
        axes.text(size, place, f" {size}", va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 1.2 * sizes.max())
    axes.set_ylim(len(sizes) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_title("records", fontsize=10, loc="left")


def _along(axes: Axes, values: list[NDArray[np.float64]], order: str) -> None:
    every = np.concatenate(values)
    low, high = np.quantile(every, [0.005, 0.995])
    edges = np.linspace(low, high, 40)
    tallest = max(np.histogram(one, edges, density=True)[0].max() for one in values)
    for place, one in enumerate(values):
        heights = np.histogram(one, edges, density=True)[0] / tallest * 0.85
        colour = COLOURS[place % len(COLOURS)]
        axes.stairs(place + 0.4 - heights, edges, baseline=place + 0.4, fill=True, color=colour, alpha=0.75)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xlabel(order)
    axes.set_title("where records lie", fontsize=10, loc="left")
