"""A model's scores, one record at a time, so that each depends on its own record to the last bit.

In a batch, a matrix product may add in another order when there is one record more. The last bit of a score
can move a record into another bin: one patient would then change another one's answer.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records


def scores_of(
    module: nn.Module, records: Records, rows: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """Logits in evaluation mode, float64[n, outputs]; some may be NaN or infinite.

    Args:
        rows: of which records; of all of them if left out.

    Raises:
        ConfigurationError: the model has another number of outputs than the label needs.
    """
    module.eval()
    place = torch.zeros((1, *records.features.shape[1:]), dtype=next(module.parameters()).dtype)
    asked = np.arange(len(records)) if rows is None else rows
    scores = np.empty((len(asked), records.logits))
    with torch.inference_mode():
        for row, record in enumerate(asked):
            # Always the same memory: kernels may differ by alignment.
            place[0] = torch.from_numpy(records.features[record])
            logits = module(place)
            if logits.shape != (1, records.logits):
                raise ConfigurationError(
                    f"model: expected {records.logits} outputs a record for {records.told}, got "
                    f"{list(logits.shape[1:])}"
                )
            scores[row] = logits[0].double().numpy()
    return scores
