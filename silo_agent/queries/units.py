"""One patient, one answer: a patient with several records adds the mean of their answers, no more.

The mean of vectors of norm at most b has norm at most b, so a patient's part keeps the bound of one record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.records import Records


def shares_of(records: Records) -> NDArray[np.float64]:
    """What each record counts: one over how many its unit has, float64[n]."""
    if records.units is None:
        return np.ones(len(records))
    shares: NDArray[np.float64] = 1.0 / np.bincount(records.units, minlength=1)[records.units]
    return shares


def counted(
    index: NDArray[np.floating[Any]] | NDArray[np.intp], shares: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Σ of shares by index: float64[size]. An index that is none of 0 … size − 1, or NaN, adds nothing."""
    known = (index >= 0) & (index < size)
    # Without any index, bincount forgets the weights' type.
    return np.bincount(index[known].astype(np.intp), shares[known], minlength=size).astype(np.float64)
