"""The benchmark's picture: CPU against the plaintext sum, and bytes a parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars, a pair for each scheme and peer; CPU on a logarithmic axis."""
    rows = result["schemes"] | result["peers"]
    names = [name.replace("_", "\n") for name in rows]
    places = np.arange(len(names))
    figure = Figure(figsize=(4 + 1.1 * len(names), 4.2), layout="constrained")
    cpu, traffic = figure.subplots(1, 2)
    bars = (
        (cpu, "silo_cpu_ratio", "one silo", -0.2),
        (cpu, "server_cpu_ratio", "servers, whole cohort", 0.2),
        (traffic, "up_bytes_per_param", "up", -0.2),
        (traffic, "down_bytes_per_param", "down", 0.2),
    )
    for axes, key, label, offset in bars:
        drawn = axes.bar(places + offset, [row[key] for row in rows.values()], 0.38, label=label)
        axes.bar_label(drawn, fmt="{:.3g}", fontsize=7)
    cpu.set_yscale("log")
    cpu.axhline(1.0, color="black", linewidth=0.8)
    cpu.set_title("CPU time, × plaintext sum", fontsize=10, pad=22)
    traffic.axhline(4.0, color="black", linewidth=0.8)
    traffic.set_title("bytes a parameter, one silo (line: plaintext)", fontsize=10, pad=22)
    for axes in (cpu, traffic):
        axes.set_xticks(places, names, fontsize=8)
        axes.margins(y=0.15)
        axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{result['params']:,} parameters, {result['silos']} silos", fontsize=10)
    figure.savefig(path, dpi=150)
