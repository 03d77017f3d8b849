"""How skewed a split is, in the numbers that ``sealsum diagnose`` knows: divergence of labels, spread of
sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy


def label_divergence(counts: NDArray[np.intp]) -> float:
    """(H(mean p_k) − mean H(p_k)) / log K over the silos' own shares (Lin 1991).

    0 where silos' labels are alike, 1 where no two silos share a class. Of two classes at K silos it is at
    most log 2 / log K.

    Args:
        counts: intp[silos, classes], every silo with at least one record.
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    apart = float(entropy(shares.mean(axis=0)) - entropy(shares, axis=1).mean()) / float(np.log(len(counts)))
    return max(0.0, apart)


def size_variation(sizes: NDArray[np.intp]) -> float:
    """Standard deviation of silos' sizes over their mean."""
    return float(sizes.std() / sizes.mean())
