"""A diagnosis on its way out: sentences for people, JSON for programs, a picture for reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from sealsum.diagnosis.picture import save_diagnosis


def show_diagnosis(report: dict[str, Any], plot: Path | None, as_json: bool) -> None:
    """Write the picture if one is asked for, and print.

    Args:
        report: ``source``, ``data``, ``advice`` and, where they are known, ``privacy``, ``drift``,
        ``rounds``.

    Raises:
        ConfigurationError: the picture's ending is none that is known.
    """
    if plot is not None:
        save_diagnosis(report, plot)
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    console, advice = Console(), report["advice"]
    console.print(f"[bold]{escape(report['source'])}[/bold]", highlight=False)
    privacy = report.get("privacy")
    if privacy is not None:
        console.print(
            f"ε = {privacy['epsilon']:.3g}, δ = {privacy['delta']:g} for one {privacy['unit']}; "
            "intervals hold "
            "the noise alone.",
            highlight=False,
        )
    for sentence in (*report.get("drift", ()), *advice["reasons"]):
        console.print(f"• {escape(sentence)}", highlight=False)
    console.print(f"\n[bold]{escape(advice['sentence'])}[/bold]", highlight=False)
