"""``sealsum diagnose``: how differently silos' data are spread, whether updates agree, and what to do about
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

from sealsum.lazy_group import Lazy, LazyGroup


class _Diagnose(LazyGroup):
    """Who asks a federation needs no learning framework."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "ask": Lazy("sealsum.diagnosis.ask_commands:ask", "Ask a federation how its data differ, under DP."),
        "show": Lazy(
            "sealsum.diagnosis.ask_commands:show", "Read the answer to such a query again, for free."
        ),
        "simulate": Lazy(
            "sealsum.diagnosis.simulate_command:simulate",
            "Diagnose tables that lie here, and run some rounds.",
        ),
    }


@click.group(cls=_Diagnose)
def command() -> None:
    """Ask whether silos' data differ, and what to do about it."""
