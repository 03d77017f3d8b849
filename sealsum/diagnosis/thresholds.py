"""Where a figure of skew or conflict begins to matter, and which side of it an estimate is on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

Level: TypeAlias = Literal["low", "moderate", "strong", "unknown"]
LABEL_SKEW: Final = (0.1, 0.3)
"""JSD / log K. Measured of four silos: IID 0.00, four hospitals 0.11, Dirichlet(0.5) 0.26, two shards
0.70."""
COLUMN_SKEW: Final = (0.06, 0.14)
"""Part of a column's variance between silos: medium and large by Cohen's (1988) convention for η²."""
SIZE_SKEW: Final = (0.5, 1.0)
"""Coefficient of variation of silos' sizes."""
GAPS: Final = 0.25
"""Part of the variance of "is missing" that lies between silos: a column that some have and others have
not."""
AT_ENDS: Final = 0.1
"""Part of a column's values at or beyond its public range: other units, or a range too narrow."""
CONFLICT: Final = (0.05, 0.3)
"""Mean pairwise cosine of updates at ten local steps: act below the first, look closer below the second."""


def level_of(one: Mapping[str, Any], bounds: tuple[float, float]) -> Level:
    """Which side of both bounds an estimate lies.

    ``unknown`` where its interval spans from low to strong, or is wider than twice what lies between the
    bounds.
    """
    if one.get("estimate") is None:
        return "unknown"
    low, high = one.get("interval_95", (one["estimate"], one["estimate"]))
    if (low < bounds[0] and high > bounds[1]) or high - low > 2 * (bounds[1] - bounds[0]):
        return "unknown"
    if one["estimate"] < bounds[0]:
        return "low"
    return "moderate" if one["estimate"] <= bounds[1] else "strong"
