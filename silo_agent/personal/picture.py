"""A silo's gains as a picture: for each metric, three models with their intervals. A door to matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure as Sheet

from privacy.errors import ConfigurationError
from silo_agent.personal.figures import LOCAL_ONLY, PERSONAL, SHARED, Figure, Gains

_COLOURS: Final = {LOCAL_ONLY: "#8a97a3", SHARED: "#c77d0a", PERSONAL: "#0b6e99"}


def save_picture(gains: Sequence[Gains], path: Path) -> None:
    """Draw the silo's own model, the job's and every personal one; the ending says PNG, SVG or PDF.

    Raises:
        ConfigurationError: no such format.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigurationError(f"{path}: expected a file that ends in .png, .svg or .pdf")
    rows: list[tuple[str, str, dict[str, Figure]]] = [
        (name, _COLOURS[name], gains[0].models[name].figures) for name in (LOCAL_ONLY, SHARED)
    ]
    rows += [(one.method, _COLOURS[PERSONAL], one.models[PERSONAL].figures) for one in gains]
    metrics = list(rows[0][2])
    sheet = Sheet(figsize=(3.6 * len(metrics), 1.1 + 0.45 * len(rows)), layout="constrained")
    panels = sheet.subplots(1, len(metrics), squeeze=False)[0]
    for panel, metric in zip(panels, metrics, strict=True):
        for height, (_, colour, figures) in enumerate(reversed(rows)):
            one = figures[metric]
            panel.plot([one.low, one.high], [height, height], color=colour, linewidth=3, alpha=0.4)
            panel.plot([one.value], [height], "o", color=colour)
        panel.set_yticks(range(len(rows)), [name.replace("_", " ") for name, _, _ in reversed(rows)])
        panel.set_ylim(-0.6, len(rows) - 0.4)
        panel.set_title(f"{metric}{' (less is better)' if metric == 'loss' else ''}", fontsize=9)
    sheet.suptitle(
        f"{gains[0].job}: {gains[0].held_out_patients} patients held out at this silo, 95 % intervals",
        fontsize=9,
    )
    sheet.savefig(path, dpi=150)
