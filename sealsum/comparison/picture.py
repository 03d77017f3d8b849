"""A comparison as a picture: how each algorithm learns, and how each silo is served. A door to matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from privacy.errors import ConfigurationError
from sealsum.comparison.report import BASELINES, Report
from sealsum.partition.picture import ENDINGS
from sealsum.queries.picture import INK, QUIET, RULE, STYLE

_LINES = (
    "#0b6e99",
    "#c77d0a",
    "#b3261e",
    "#5b7f3a",
    "#7a4fa3",
    "#2f9e8f",
    "#a6522c",
    "#4a5f8a",
    "#c2528b",
    "#8a8a00",
)
_BASELINE = {"pooled": (INK, "--"), "local": ("#8a97a3", ":")}


def save_comparison(report: Report, path: Path) -> None:
    """Write the picture; the ending says PNG, SVG or PDF.

    Raises:
        ConfigurationError: no such format, or nothing was trained.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ConfigurationError(f"{path}: expected a file that ends in {', '.join(ENDINGS)}")
    rows = [row for row in report["rows"] if row["seeds"]]
    if not rows:
        raise ConfigurationError(f"{path}: expected an algorithm that could be trained, got none")
    federated = [row for row in rows if row["algorithm"] not in BASELINES]
    colours = {row["algorithm"]: _LINES[place % len(_LINES)] for place, row in enumerate(federated)}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12.4, max(3.8, 0.34 * len(rows) + 1.6)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        _curves(left, rows, report, colours)
        _silos(right, rows, report, colours)
        figure.suptitle(report["split"], fontsize=9, color=QUIET)
        figure.savefig(path, dpi=150, facecolor="white")


def _curves(axes: Axes, rows: list[dict[str, Any]], report: Report, colours: dict[str, str]) -> None:
    first = report["figures"][0]
    again = list(colours)[len(_LINES) :]
    for row in rows:
        name = row["algorithm"]
        if name in _BASELINE:
            colour, style = _BASELINE[name]
            axes.axhline(row[first]["mean_over_silos"]["mean"], color=colour, linestyle=style, label=name)
            continue
        rounds = range(1, len(row["curve"]) + 1)
        axes.plot(
            rounds,
            row["curve"],
            color=colours[name],
            linewidth=1.5,
            label=name,
            linestyle="-." if name in again else "-",
        )
    for target in report["targets"]:
        axes.axhline(target, color=RULE, linewidth=0.8, zorder=0)
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"{first}, mean over silos")
    axes.set_title("how they learn", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8, ncols=2 if len(rows) > 6 else 1, loc="lower right")


def _silos(axes: Axes, rows: list[dict[str, Any]], report: Report, colours: dict[str, str]) -> None:
    first = report["figures"][0]
    for place, row in enumerate(rows):
        one, name = row[first], row["algorithm"]
        colour = _BASELINE[name][0] if name in _BASELINE else colours[name]
        values = [silo["mean"] for silo in one["by_silo"].values()]
        axes.plot([min(values), max(values)], [place, place], color=RULE, linewidth=2, zorder=0)
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=4, alpha=0.65)
        axes.plot(one["mean_over_silos"]["mean"], place, "|", color=INK, markersize=13, markeredgewidth=1.6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row["algorithm"] for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(first)
    axes.set_title("a dot a silo, a bar their mean", fontsize=10, loc="left")
