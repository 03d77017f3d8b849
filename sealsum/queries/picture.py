"""An answer as a picture: histograms with error bars, ROC curve, reliability diagram. A door to matplotlib.

Reads only what the answer's JSON says, and draws on figures of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privacy.errors import ConfigurationError

INK, QUIET, RULE = "#1b2733", "#5d6b78", "#d8dee4"
COLOURS: Final = ("#0b6e99", "#c77d0a", "#8a97a3", "#b3261e")
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}


def save_picture(answer: Mapping[str, Any], path: Path) -> None:
    """Write a picture of everything in the answer that has a shape; the ending says PNG, SVG or PDF.

    Raises:
        ConfigurationError: nothing in it has, or no such format.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigurationError(f"{path}: expected a file that ends in .png, .svg or .pdf")
    asked = [*answer.get("statistics", ()), *answer.get("metrics", ())]
    panels = [(one, _PANELS[one["kind"]]) for one in asked if one["kind"] in _PANELS]
    if not panels:
        raise ConfigurationError(f"{path}: the answer has nothing to draw: {', '.join(_PANELS)}")
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * columns, 3.2 * rows + 0.4), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, (one, draw) in zip(axes, panels, strict=False):
            draw(place, one)
        for place in axes[len(panels) :]:
            place.axis("off")
        privacy = answer["privacy"]
        figure.suptitle(
            f"{answer['job']}: {answer['dataset']} at {answer['silos']} silos, ε = {privacy['epsilon']:.3g}, "
            f"δ = {privacy['delta']:g}; bars span 95 % of the noise",
            fontsize=9,
            color=QUIET,
        )
        figure.savefig(path, dpi=150)


def _bars(axes: Axes, offset: float, width: float, counts: list[Mapping[str, Any]], **look: Any) -> None:
    values = [one["estimate"] for one in counts]
    reach = [one["interval_95"][1] - one["estimate"] for one in counts]
    places = [number + offset for number in range(len(counts))]
    axes.bar(places, values, width, **look)
    axes.errorbar(places, values, yerr=reach, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)


def _histogram(axes: Axes, one: Mapping[str, Any]) -> None:
    histograms = one["histograms"]
    width = 0.8 / len(histograms)
    for number, histogram in enumerate(histograms):
        counts = [*histogram["bins"], histogram["missing"]]
        offset = (number - (len(histograms) - 1) / 2) * width
        colour = COLOURS[number % len(COLOURS)]
        _bars(axes, offset, width, counts, color=colour, alpha=0.75, label=histogram.get("label"))
    names = [bin_.get("category") or f"{bin_['from']:g}–{bin_['to']:g}" for bin_ in histograms[0]["bins"]]
    names.append("missing")
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.axhline(0, color=RULE, linewidth=0.8)
    axes.set_ylabel("patients")
    axes.set_title(one["column"], fontsize=10, loc="left")
    if len(histograms) > 1:
        axes.legend(frameon=False, fontsize=8)


def _label(axes: Axes, one: Mapping[str, Any]) -> None:
    _bars(axes, 0.0, 0.6, one["counts"], color=COLOURS[0], alpha=0.75)
    axes.set_xticks(range(len(one["counts"])), [count["label"] for count in one["counts"]])
    axes.set_ylabel("patients")
    axes.set_title(one["column"], fontsize=10, loc="left")


def _roc(axes: Axes, one: Mapping[str, Any]) -> None:
    curve = one.get("roc", ())
    axes.plot(
        [point["false_positive"] for point in curve],
        [point["true_positive"] for point in curve],
        color=COLOURS[0],
        linewidth=1.6,
    )
    axes.plot([0, 1], [0, 1], color=RULE, linewidth=1, zorder=0)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    area = one["auc"]
    title = "ROC: too little beside the noise"
    if area["estimate"] is not None:
        low, high = area["interval_95"]
        title = f"ROC: area {area['estimate']:.3f} ({low:.3f} to {high:.3f})"
    axes.set_title(title, fontsize=10, loc="left")


def _reliability(axes: Axes, one: Mapping[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], color=RULE, linewidth=1, zorder=0)
    shown = [
        row
        for row in one["bins"]
        if row["predicted"]["estimate"] is not None and row["observed"]["estimate"] is not None
    ]
    observed = [row["observed"] for row in shown]
    axes.errorbar(
        [row["predicted"]["estimate"] for row in shown],
        [row["estimate"] for row in observed],
        yerr=[row["interval_95"][1] - row["estimate"] for row in observed],
        fmt="o",
        color=COLOURS[0],
        ecolor=INK,
        elinewidth=0.9,
        capsize=2,
        markersize=4,
    )
    axes.set_xlim(0, 1)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("observed frequency")
    axes.set_title(f"Calibration, {len(shown)} of {len(one['bins'])} bins", fontsize=10, loc="left")


def _confusion(axes: Axes, one: Mapping[str, Any]) -> None:
    names, matrix = one["labels"], [[cell["estimate"] for cell in row] for row in one["matrix"]]
    most = max(1.0, max(max(row) for row in matrix))
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1.6 * most)
    for true, row in enumerate(one["matrix"]):
        for predicted, cell in enumerate(row):
            reach = cell["interval_95"][1] - cell["estimate"]
            axes.text(predicted, true, f"{cell['estimate']:.0f} ± {reach:.0f}", ha="center", va="center")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(f"Confusion at {one['threshold']:g}", fontsize=10, loc="left")


_PANELS: dict[str, Callable[[Axes, Mapping[str, Any]], None]] = {
    "label": _label,
    "histogram": _histogram,
    "auc": _roc,
    "calibration": _reliability,
    "confusion": _confusion,
}
