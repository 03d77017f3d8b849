"""How many of each class's records a model finds at this silo: what is followed from round to round."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from silo_agent.personal.measures import outcome_of
from silo_agent.personal.workplace import Vector, Workplace


def recall_by_class(place: Workplace, vector: Vector) -> tuple[float | None, ...]:
    """Of a model, float32[d], on the place's own records.

    Raises:
        ConfigurationError: its job predicts no classes.
    """
    records = place.records
    if records.kind != "classes":
        raise ConfigurationError(f"follow_models: expected a job that predicts classes, got {records.told}")
    torch.set_num_threads(1)
    right = outcome_of(place.scored(vector), records).right
    found: list[float | None] = []
    for one in range(records.classes):
        of_class: NDArray[np.bool_] = records.labels == one
        found.append(float(right[of_class].mean()) if right is not None and of_class.any() else None)
    return tuple(found)
