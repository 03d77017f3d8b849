"""What a share server takes in which phase of a round: one table. Idempotent repeats are answered before it.

open ── close ──► frozen ── agree ──► agreed ── release ──► released
  │                  │                   │                     │
  └──────────────────┴───── finish ──────┴─────────────────────┴──► finished
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from privacy.errors import OutOfOrder

Phase = Literal["open", "frozen", "agreed", "released", "finished"]
Call = Literal["part", "manifest", "close", "agree", "release", "fetch", "finish"]

TABLE: Final[Mapping[tuple[str, Call], Phase]] = MappingProxyType(
    {
        ("open", "part"): "open",
        ("open", "manifest"): "open",
        ("open", "close"): "frozen",
        ("frozen", "agree"): "agreed",
        ("agreed", "release"): "released",
        ("released", "fetch"): "released",
        ("open", "finish"): "finished",
        ("frozen", "finish"): "finished",
        ("agreed", "finish"): "finished",
        ("released", "finish"): "finished",
    }
)


def follow(phase: str, call: Call) -> Phase:
    """The phase after ``call``.

    Raises:
        OutOfOrder: the table has no such step.
    """
    after = TABLE.get((phase, call))
    if after is None:
        raise OutOfOrder(f"round: {call} cannot follow in phase {phase}")
    return after
