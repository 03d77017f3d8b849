"""Blocks of metrics that any label may have, or that are of numbers, masks and survival times. Knows no data.

A patient's block, and why its norm is within the bound: k numbers in [0, 1] have √k; a one-hot block has 1.
Concordance compares pairs of patients, but the comparison is made of the opened histogram: each patient only
adds to one cell of it.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from privacy.errors import Unprocessable
from privacy.labels import AnyLabel, LabelKind, kind_name
from privacy.query_terms import ConcordanceMetric, DiceMetric, ErrorMetric, LossMetric

Outcome: TypeAlias = LossMetric | ErrorMetric | DiceMetric | ConcordanceMetric
OUTCOMES: Final = (LossMetric, ErrorMetric, DiceMetric, ConcordanceMetric)
_OF: Final[dict[str, tuple[LabelKind, ...]]] = {
    "loss": ("classes", "real", "mask", "exponential"),
    "error": ("real",),
    "dice": ("mask",),
    "concordance": ("cox", "exponential"),
}
"""Labels that a metric is of. The Cox loss is of a silo's records together: no part of it is bounded."""


def outcome_form(asked: Outcome, label: AnyLabel) -> tuple[tuple[int, ...], float]:
    """Shape and bound of a patient's block.

    Raises:
        Unprocessable: the label has no such metric.
    """
    if label.kind not in _OF[asked.kind]:
        known = " or ".join(kind_name(kind) for kind in _OF[asked.kind])
        raise Unprocessable(
            f"query: expected a label of {known} for {asked.kind}, got {kind_name(label.kind)}"
        )
    if isinstance(asked, LossMetric | DiceMetric):
        return (2,), math.sqrt(2)  # (1, x)
    if isinstance(asked, ErrorMetric):
        return (3,), math.sqrt(3)  # (1, e, e²)
    return (2, asked.time_bins + 1, asked.bins), 1.0
