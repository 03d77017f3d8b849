"""The one loss of a job, as a sum over records: a mean, or class weights, would couple them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from silo_agent.data.records import Records


def summed_loss(module: nn.Module, records: Records, chosen: NDArray[np.intp]) -> torch.Tensor:
    """Σ over the chosen records of the binary cross-entropy with logits: a scalar with a graph."""
    # Opacus' hooks ask that some input has a gradient.
    features = torch.from_numpy(records.features[chosen]).requires_grad_()
    labels = torch.from_numpy(records.labels[chosen])
    return binary_cross_entropy_with_logits(module(features).squeeze(-1), labels, reduction="sum")
