"""The benchmark's picture: score against ε, a panel for each dataset, on the hardest split it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

HARDEST = ("natural", "label skew", "IID")
COLOURS = {
    "pooled, no DP": "black",
    "pooled DP-SGD": "tab:gray",
    "dp_fedsgd, t = 0": "tab:blue",
    "dp_fedsgd, t = 1": "tab:cyan",
    "dp_fedavg": "tab:orange",
    "local only": "tab:red",
}


def plot(result: dict[str, Any], path: Path) -> None:
    """Lines with spread; pooled without DP is a level."""
    datasets = list(dict.fromkeys(row["dataset"] for row in result["rows"]))
    figure = Figure(figsize=(3.6 * len(datasets), 3.8), layout="constrained")
    panels = figure.subplots(1, len(datasets), squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = [row for row in result["rows"] if row["dataset"] == dataset]
        splits = {row["split"] for row in rows}
        split = next(one for one in HARDEST if one in splits)
        for method, colour in COLOURS.items():
            shown = [row for row in rows if row["method"] == method and row["split"] in (split, "pooled")]
            if not shown:
                continue
            if shown[0]["epsilon"] is None:
                axes.axhline(shown[0]["mean"], color=colour, linewidth=0.8, label=method)
                continue
            shown.sort(key=lambda row: row["epsilon"])
            axes.errorbar(
                [row["epsilon"] for row in shown],
                [row["mean"] for row in shown],
                [row["spread"] for row in shown],
                color=colour,
                marker="o",
                markersize=3,
                capsize=2,
                label=method,
            )
        epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.minorticks_off()
        axes.set_xlabel("ε")
        axes.set_title(f"{dataset.replace('_', ' ')}, {split}", fontsize=10)
        axes.set_ylabel("100 · AUC" if rows[0]["metric"] == "AUC" else "% right")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=7, frameon=False, loc="center right")
    figure.suptitle(f"{result['silos']} silos, δ = {result['delta']:g}", fontsize=10)
    figure.savefig(path, dpi=150)
