"""The catalogue's rows of algorithms that leave each silo something of its own (docs/personalisation.md)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from privacy.personal_terms import INTERCEPT, LAST, REFUSED_WITH_DP, PersonalName
from sealsum.algorithm_row import TEN, AlgorithmRow

_INSTEAD: Final = (
    "personalise after training (sealsum silo personalise), or use ditto, which feeds nothing back"
)


def _own_part(kind: PersonalName, stays: str, shared: str, **said: Any) -> AlgorithmRow:
    return AlgorithmRow(
        {"algorithm": "fedavg", **TEN, "personal": {"kind": kind, **said}},
        None,
        stays,
        shared,
        cost="one sum, zero where a silo keeps its own",
        refused=f"{REFUSED_WITH_DP[kind]}; {_INSTEAD}",
    )


_DITTO: Final = {"kind": "ditto", "regular_weight": 0.1, "learning_rate": 0.1, "steps": 10}
PERSONAL_ROWS: Final[Mapping[str, AlgorithmRow]] = MappingProxyType(
    {
        "fedbn": _own_part("fedbn", "keeps its normalisation layers", "the mean of the rest"),
        "fedper": _own_part(
            "fedper", "keeps local_param, the last layer", "the mean of the rest", local_param=[LAST]
        ),
        "local_intercept": _own_part(
            "fedper", "keeps the last bias", "the mean of the rest", local_param=[INTERCEPT]
        ),
        "moe": _own_part(
            "fedper",
            "keeps the gate of a mixture (model.adapter experts)",
            "the mean of the experts",
            local_param=["gate"],
        ),
        "hypernetwork": _own_part(
            "fedper",
            "keeps its embedding (model.adapter hypernetwork)",
            "the mean of what writes a model from it",
            local_param=["embedding"],
        ),
        "mixed_intervals": _own_part(
            "mixed_intervals",
            "keeps local_param, the last layer, but for every fifth round",
            "the mean of the rest, or of all",
            local_param=[LAST],
            every=5,
        ),
        "sparse_masks": AlgorithmRow(
            {
                "algorithm": "sparse_masks",
                **TEN,
                "local": {"mask_share": 0.5},
                "server": {"mask_minimum": 2},
            },
            None,
            "sends the coordinates that moved most (mask_share), and a one for each",
            "each coordinate over how many sent it, where mask_minimum or more did",
            cost="two sums; a model of at most 1024 parameters",
            leaks="how many silos sent each coordinate, to all; the value of one that a single silo sent",
            refused=(
                "which coordinates a silo sends is chosen by its records, so that one record more moves "
                f"whole coordinates in and out; {_INSTEAD}"
            ),
            schemes="all but threshold_bfv and threshold_ckks, which decrypt one vector a round; no validity",
            further=("mask",),
        ),
        "ditto": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "personal": _DITTO},
            {"algorithm": "dp_fedsgd", "personal": _DITTO},
            "as fedavg, with DP as dp_fedsgd; beside it a model of its own, drawn to the shared one",
            "the mean update",
        ),
        "per_fedavg": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "personal": {"kind": "per_fedavg", "learning_rate": 0.1}},
            None,
            "steps along gradients taken one step ahead; then fine_tune --steps 1 makes it its own",
            "the mean update",
            refused=f"{REFUSED_WITH_DP['per_fedavg']}; {_INSTEAD}",
        ),
        "reptile": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "server_learning_rate": 0.5},
            {"algorithm": "dp_fedavg", "server_learning_rate": 0.5},
            "as fedavg, with DP as dp_fedavg; then fine_tune makes it its own",
            "a step of half the mean update",
        ),
    }
)
"""Name → row."""
