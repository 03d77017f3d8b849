"""Noisy counts made those of some table: none below 0, and in all as many as are believed to be there.

Post-processing of what was opened. Cutting off what is below 0 would add records that nobody has; the nearest
counts in the sense of least squares add none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def nearest_counts(noisy: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The point of {x ≥ 0, Σ x = total} nearest to ``noisy``, float64[n] (Duchi et al. 2008, fig. 1).

    Args:
        total: above 0.
    """
    falling = np.sort(noisy)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    kept = int(np.flatnonzero(falling > excess)[-1])
    nearest: NDArray[np.float64] = np.maximum(noisy - excess[kept], 0.0)
    return nearest


def agreed_total(totals: NDArray[np.float64], errors: NDArray[np.float64]) -> tuple[float, float]:
    """One number and its standard error from several independent estimates of it, by inverse variance."""
    weights = 1.0 / errors**2
    return float(weights @ totals / weights.sum()), float(weights.sum() ** -0.5)
