"""The area under the ROC curve as a rank statistic (Mann and Whitney 1947), ties counted half."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from privacy.errors import SealsumError


def auc(scores: NDArray[np.floating], labels: NDArray[np.floating]) -> float:
    """Probability that a random sick patient scores above a random healthy one.

    Args:
        scores: float[n], any monotone score.
        labels: float[n], 1 for disease and 0 for none.

    Raises:
        SealsumError: one of the two classes is absent, so that the figure does not exist.
    """
    positive = labels > 0.5
    sick, healthy = int(positive.sum()), int((~positive).sum())
    if sick == 0 or healthy == 0:
        raise SealsumError("AUC: expected patients of both classes among those held out, got one class")
    ranks = rankdata(scores.astype(np.float64))
    return float((ranks[positive].sum() - sick * (sick + 1) / 2) / (sick * healthy))
