"""The two pictures of a run, drawn once for the report (SVG) and for the README (PNG).

This module is the demo's only door to matplotlib; it draws on its own figures and keeps no global state.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sealsum.demo.results import DemoResult, Scores

INK, QUIET, RULE = "#1b2733", "#5d6b78", "#d8dee4"
LOCAL, FEDERATED, POOLED, CAP = "#8a97a3", "#0b6e99", "#c77d0a", "#b3261e"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "sealsum",
}
ALL_FOUR = "All held-out patients"


@dataclass(frozen=True)
class Drawings:
    """Both pictures as ``<svg>`` elements: the report shows them, inside the pack and outside."""

    auc: str
    budget: str


def draw(result: DemoResult) -> Drawings:
    """Draw both pictures of a run."""
    return Drawings(auc=svg_text(auc_figure(result)), budget=svg_text(budget_figure(result)))


def auc_figure(result: DemoResult) -> Figure:
    """A dot for each model and hospital; no bars, since an AUC has no meaningful zero."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.6, 3.6), layout="constrained")
        _draw_auc(figure.subplots(), result)
        return figure


def budget_figure(result: DemoResult) -> Figure:
    """What is left of the job's budget after each round, one panel a hospital."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.6, 2.6), layout="constrained")
        panels = figure.subplots(1, len(result.silos), sharex=True, sharey=True)
        for index, panel in enumerate(panels):
            _draw_budget(panel, result, index)
        return figure


def svg_text(figure: Figure) -> str:
    """The figure as an ``<svg>`` element to stand inside an HTML page: no XML prolog, no time stamp."""
    with mpl.rc_context(_STYLE):
        raw = io.StringIO()
        figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = raw.getvalue()
    return text[text.index("<svg") :]


def write_png(result: DemoResult, path: Path) -> None:
    """Both pictures in one image, as the README shows it."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.4, 6.6), layout="constrained", facecolor="white")
        grid = figure.add_gridspec(2, 1, height_ratios=[3.7, 2.9], hspace=0.06)
        above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
        most = math.ceil(100 * max(silo.epsilon for silo in result.silos)) / 100
        above.suptitle(
            f"Four hospitals, one model: ε ≤ {most:g} per patient, only sums opened",
            x=0.015,
            ha="left",
            fontsize=13,
            fontweight="bold",
        )
        _draw_auc(above.subplots(), result)
        panels = below.subplots(1, len(result.silos), sharex=True, sharey=True)
        for index, panel in enumerate(panels):
            _draw_budget(panel, result, index)
        figure.savefig(path, dpi=150)


def _draw_auc(axes: Axes, result: DemoResult) -> None:
    rows: list[tuple[str, Scores]] = [(ALL_FOUR, result.scores)]
    rows += [(silo.title, silo.scores) for silo in result.silos]
    rows.reverse()
    every = [value for _, s in rows for value in (s.local_only, s.federated, s.pooled)]
    lowest = min(0.5, *every) - 0.03
    for height, (title, scores) in enumerate(rows):
        values = (scores.local_only, scores.federated, scores.pooled)
        axes.plot([min(values), max(values)], [height, height], color=RULE, linewidth=3, zorder=1)
        axes.scatter(
            scores.local_only, height, s=70, facecolor="white", edgecolor=LOCAL, linewidth=2, zorder=3
        )
        axes.scatter(scores.pooled, height, s=62, marker="D", color=POOLED, zorder=2)
        axes.scatter(scores.federated, height, s=86, color=FEDERATED, zorder=4)
        axes.annotate(
            f"{scores.federated:.3f}",
            (1.012, height),
            xycoords=("axes fraction", "data"),
            va="center",
            color=FEDERATED,
            fontweight="bold" if title == ALL_FOUR else "normal",
            annotation_clip=False,
        )
    axes.axhspan(len(rows) - 1.5, len(rows) - 0.5, color="#f2f6f9", zorder=0)
    axes.axvline(0.5, color=RULE, linestyle=(0, (4, 3)), linewidth=1.2, zorder=0)
    axes.annotate(
        "coin toss",
        (0.5, -0.62),
        fontsize=8,
        color=QUIET,
        ha="left",
        xytext=(3, 0),
        textcoords="offset points",
    )
    axes.set_yticks(range(len(rows)), [title for title, _ in rows])
    axes.set_ylim(-0.75, len(rows) - 0.4)
    axes.set_xlim(lowest, 1.0)
    axes.set_xlabel("AUC on held-out patients (dashed: 0.5)")
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.legend(
        handles=[
            Line2D(
                [],
                [],
                marker="o",
                color="none",
                markerfacecolor="white",
                markeredgecolor=LOCAL,
                markeredgewidth=2,
                markersize=8,
                label="local only, same DP",
            ),
            Line2D(
                [],
                [],
                marker="o",
                color="none",
                markerfacecolor=FEDERATED,
                markeredgecolor="none",
                markersize=9,
                label="federated, DP",
            ),
            Line2D(
                [],
                [],
                marker="D",
                color="none",
                markerfacecolor=POOLED,
                markeredgecolor="none",
                markersize=8,
                label="all data pooled, no DP",
            ),
        ],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        frameon=False,
    )


def _draw_budget(axes: Axes, result: DemoResult, index: int) -> None:
    silo, cap = result.silos[index], result.caps.job
    left = [cap, *(cap - spent for spent in silo.epsilon_after_round)]
    at = list(range(len(left)))
    axes.fill_between(at, left, step="post", color=FEDERATED, alpha=0.16, linewidth=0)
    axes.step(at, left, where="post", color=FEDERATED, linewidth=1.8)
    axes.axhline(cap, color=CAP, linestyle=(0, (5, 3)), linewidth=1.1)
    axes.set_title(silo.title, loc="left", fontsize=10)
    lifetime = result.caps.lifetime
    axes.annotate(
        f"ε {silo.epsilon:.2f} spent\nlifetime left {lifetime - silo.epsilon:.2f} of {lifetime:g}",
        (0.97, 0.82),
        xycoords="axes fraction",
        ha="right",
        va="top",
        fontsize=8,
        color=QUIET,
    )
    axes.set_ylim(0, cap * 1.12)
    axes.set_xlim(0, max(1, result.rounds) * 1.04)
    axes.set_xlabel("round")
    axes.tick_params(length=0)
    if index == 0:
        axes.set_ylabel(f"ε left of the job's cap {cap:g}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
