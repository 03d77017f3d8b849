"""Pictures of a suite's result: how much of each ε was found, and originals beside their reconstructions."""

from __future__ import annotations

import io
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sealsum.attack.outcome import Outcome, Strip
from sealsum.attack.suite import Result
from sealsum.demo.picture import CAP, FEDERATED, INK, LOCAL, QUIET, RULE

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": INK,
}
_COLUMNS: Final = 16
_LARGEST_EPSILON: Final = 20.0


def epsilon_png(result: Result) -> bytes:
    """Lower bounds of ε against the claim, one row an arm."""
    rows = [outcome for outcome in result.outcomes if "epsilon_at_least" in outcome.figures]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.6, 0.34 * len(rows) + 0.9), layout="constrained", facecolor="white")
        _draw_bounds(figure.subplots(), rows)
        return _png(figure)


def strips_png(strips: tuple[Strip, ...]) -> bytes:
    """Originals above, and below them what each attack made of them."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.6, 0.82 * len(strips)), layout="constrained", facecolor="white")
        _draw_strips(figure.subplots(len(strips), 1, squeeze=False)[:, 0], strips)
        return _png(figure)


def summary_png(result: Result) -> bytes:
    """All of it in one image."""
    strips = [findings.strips for _, findings in result.parts if findings.strips]
    rows = [outcome for outcome in result.outcomes if "epsilon_at_least" in outcome.figures]
    heights = [0.34 * len(rows) + 0.9, *(0.82 * len(one) for one in strips)]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.4, sum(heights)), layout="constrained", facecolor="white")
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        _draw_bounds(parts[0].subplots(), rows)
        for part, one in zip(parts[1:], strips, strict=True):
            _draw_strips(part.subplots(len(one), 1, squeeze=False)[:, 0], one)
        return _png(figure)


def _draw_bounds(axes: Axes, rows: list[Outcome]) -> None:
    for height, outcome in enumerate(reversed(rows)):
        least, claim = outcome.figures["epsilon_at_least"], outcome.figures["epsilon_claimed"]
        colour = FEDERATED if outcome.protected else LOCAL
        shown = min(least, _LARGEST_EPSILON)
        axes.plot([0, shown], [height, height], color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot([claim, claim], [height - 0.35, height + 0.35], color=CAP, linewidth=1.6)
        axes.annotate(
            f"{least:.2f}" if least <= _LARGEST_EPSILON else f"> {_LARGEST_EPSILON:g}",
            (max(shown, claim), height),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_yticks(range(len(rows)), [f"{one.attack}: {one.protection}" for one in reversed(rows)])
    axes.set_xlim(0, _LARGEST_EPSILON * 1.08)
    axes.set_xlabel("lower bound of ε found by the attack (red: what is claimed)")
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_strips(panels: np.ndarray[Any, Any], strips: tuple[Strip, ...]) -> None:
    side = strips[0].images.shape[1]
    for panel, strip in zip(panels, strips, strict=True):
        canvas = np.ones((side, _COLUMNS * (side + 1)))
        for place, image in enumerate(strip.images[:_COLUMNS]):
            canvas[:, place * (side + 1) : place * (side + 1) + side] = image
        panel.imshow(canvas, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        panel.set_title(strip.title, loc="left", fontsize=8, pad=2)
        panel.set_axis_off()


def _png(figure: Figure) -> bytes:
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=130, metadata={"Software": None})
    return raw.getvalue()
