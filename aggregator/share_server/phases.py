"""What a share server takes in which phase of a round: one table. Idempotent repeats are answered before it.

open ── close ──► frozen ── agree ──► agreed ── release ──► released
                     │                  ▲
   with validity:    └─ commit_shares ─► tossing_shares ─ settle_shares ─► proving ─ freeze_proofs ─► proven
                                        │  ┌── commit_proofs ─────────────────────────────────────────┘
                                        │  └─► tossing_proofs ─ settle_proofs ─► checking ─ judge ─► judged
                                        └────────────────────── agree_on_valid ────────────────────────┘

``finish`` ends a round in any of these phases.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from privacy.errors import OutOfOrder

Phase = Literal[
    "open",
    "frozen",
    "tossing_shares",
    "proving",
    "proven",
    "tossing_proofs",
    "checking",
    "judged",
    "agreed",
    "released",
    "finished",
]
Call = Literal[
    "part",
    "manifest",
    "close",
    "commit_shares",
    "reveal_shares",
    "settle_shares",
    "witness",
    "freeze_proofs",
    "commit_proofs",
    "reveal_proofs",
    "settle_proofs",
    "check",
    "judge",
    "agree",
    "agree_on_valid",
    "release",
    "fetch",
    "finish",
]

TABLE: Final[Mapping[tuple[str, Call], Phase]] = MappingProxyType(
    {
        ("open", "part"): "open",
        ("open", "manifest"): "open",
        ("open", "close"): "frozen",
        ("frozen", "agree"): "agreed",
        ("frozen", "commit_shares"): "tossing_shares",
        ("tossing_shares", "reveal_shares"): "tossing_shares",
        ("tossing_shares", "settle_shares"): "proving",
        ("proving", "witness"): "proving",
        ("proving", "freeze_proofs"): "proven",
        ("proven", "commit_proofs"): "tossing_proofs",
        ("tossing_proofs", "reveal_proofs"): "tossing_proofs",
        ("tossing_proofs", "settle_proofs"): "checking",
        ("checking", "check"): "checking",
        ("checking", "judge"): "judged",
        ("judged", "agree_on_valid"): "agreed",
        ("agreed", "release"): "released",
        ("released", "fetch"): "released",
        **{(phase, "finish"): "finished" for phase in get_args(Phase) if phase != "finished"},
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
