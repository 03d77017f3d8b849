"""A diagnosis as a picture: skews beside their thresholds, columns, and whom each model serves. By
matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privacy.errors import ConfigurationError
from sealsum.diagnosis.thresholds import COLUMN_SKEW, CONFLICT, LABEL_SKEW, SIZE_SKEW
from sealsum.partition.picture import ENDINGS
from sealsum.queries.picture import COLOURS, INK, QUIET, RULE, STYLE

_GOOD, _FAIR, _POOR = "#cfe3d4", "#f3e2bd", "#efc4bd"
_MODELS = {"local": "#8a97a3", "federated": COLOURS[0], "personal": COLOURS[1], "pooled": INK}
_MOST_COLUMNS = 14


def save_diagnosis(report: dict[str, Any], path: Path) -> None:
    """Write the picture; the ending says PNG, SVG or PDF.

    Args:
        report: with ``data``, ``advice`` and, where rounds were run, ``rounds``.

    Raises:
        ConfigurationError: no such format.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ConfigurationError(f"{path}: expected a file that ends in {', '.join(ENDINGS)}")
    data, rounds = report["data"], report.get("rounds")
    figures: dict[str, Any] = {} if rounds is None else rounds["figures"]
    rows = 1 if rounds is None else 2
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 3.7 * rows + 0.2), layout="constrained")
        axes = figure.subplots(rows, 2, squeeze=False).ravel()
        _gauges(axes[0], data, rounds)
        _columns(axes[1], data["columns"])
        for place, (name, one) in zip(axes[2:], figures.items(), strict=False):
            _served(place, name, one)
        for place in axes[2 + len(figures) :]:
            place.axis("off")
        figure.suptitle(report["advice"]["sentence"], fontsize=9, color=QUIET, wrap=True)
        figure.savefig(path, dpi=150, facecolor="white")


def _gauges(axes: Axes, data: dict[str, Any], rounds: dict[str, Any] | None) -> None:
    """A row a figure: three zones, and where the estimate lies with its interval."""
    rows: list[tuple[str, dict[str, Any], tuple[float, float], tuple[float, float], bool]] = [
        ("label skew\nJSD / log K", data["label_skew"]["divergence"], LABEL_SKEW, (0.0, 1.0), False),
        ("size skew\nCV of n", data["size_skew"]["variation"], SIZE_SKEW, (0.0, 2.0), False),
    ]
    if rounds is not None:
        cosine = {"estimate": rounds["cosine"]["mean"]["mean"]}
        rows.append(("updates agree\nmean cosine", cosine, CONFLICT, (-0.4, 1.0), True))
    for place, (_, one, (first, second), (low, high), more_is_better) in enumerate(rows):
        colours = (_POOR, _FAIR, _GOOD) if more_is_better else (_GOOD, _FAIR, _POOR)
        edges = [low, first, second, high]
        for number, colour in enumerate(colours):
            left, right = ((edge - low) / (high - low) for edge in edges[number : number + 2])
            axes.barh(place, right - left, 0.42, left=left, color=colour)
        for bound in (first, second):
            at = (bound - low) / (high - low)
            axes.text(at, place + 0.26, f"{bound:g}", ha="center", va="top", fontsize=7, color=QUIET)
        if one["estimate"] is None:
            axes.text(0.5, place, "hidden by the noise", ha="center", va="center", fontsize=8)
            continue
        ends = one.get("interval_95", [one["estimate"], one["estimate"]])
        at, *span = (min(1.0, max(0.0, (value - low) / (high - low))) for value in (one["estimate"], *ends))
        axes.plot(span, [place, place], color=INK, linewidth=1.2)
        axes.plot(at, place, "o", color=INK, markersize=6)
        axes.text(at, place - 0.27, f"{one['estimate']:.2f}", ha="center", va="bottom", fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.02)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("how silos differ", fontsize=10, loc="left")


def _columns(axes: Axes, columns: list[dict[str, Any]]) -> None:
    known = [one for one in columns if one["between"].get("estimate") is not None]
    shown = sorted(known, key=lambda one: -float(one["between"]["estimate"]))[:_MOST_COLUMNS]
    values = [one["between"]["estimate"] for one in shown]
    errors = [one["between"]["interval_95"][1] - one["between"]["estimate"] for one in shown]
    places = range(len(shown))
    axes.barh(places, values, 0.6, color=COLOURS[0], alpha=0.8)
    if any(errors):
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
    for bound in COLUMN_SKEW:
        axes.axvline(bound, color=RULE, linewidth=1, zorder=0)
    axes.set_yticks(places, [one["column"] for one in shown])
    axes.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    if not shown:
        axes.text(0.5, 0.5, "hidden by the noise", transform=axes.transAxes, ha="center", fontsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("part of the variance between silos")
    hidden = len(columns) - len(known)
    axes.set_title("columns" + (f" ({hidden} hidden by noise)" if hidden else ""), fontsize=10, loc="left")


def _served(axes: Axes, name: str, figure: dict[str, Any]) -> None:
    for place, (model, colour) in enumerate(_MODELS.items()):
        values = [one["mean"] for one in figure[model]["by_silo"].values()]
        mean = figure[model]["mean_over_silos"]["mean"]
        axes.plot([min(values), max(values)], [place, place], color=RULE, linewidth=2, zorder=0)
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=5, alpha=0.75)
        axes.plot(mean, place, "|", color=INK, markersize=15, markeredgewidth=1.6)
        axes.text(mean, place - 0.22, f"{mean:.3f}", ha="center", va="bottom", fontsize=8)
    axes.set_ylim(len(_MODELS) - 0.5, -0.6)
    axes.set_yticks(range(len(_MODELS)), list(_MODELS))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(name)
    axes.set_title(f"{name}: a dot a silo, a bar their mean", fontsize=10, loc="left")
