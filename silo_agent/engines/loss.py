"""The one loss of a job, as a sum over records: a mean, or class weights, would couple them.

Which of the two it is follows from what the labels are, and so from the job's public data schema.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records

PADDING: Final = -1
"""In the place of a row's number: a public record of zeros, which fills a pass up to its shape."""


def summed_loss(module: nn.Module, records: Records, chosen: NDArray[np.intp]) -> torch.Tensor:
    """Σ over the chosen records of their ``losses``: a scalar with a graph."""
    return losses(module, records, chosen).sum()


def losses(module: nn.Module, records: Records, chosen: NDArray[np.intp]) -> torch.Tensor:
    """The cross-entropy of each chosen record, or ``PADDING``: [chosen], with a graph.

    Two classes take one logit, K > 2 classes K logits (softmax).

    Raises:
        ConfigurationError: the model has another number of outputs a record.
    """
    # Opacus' hooks ask that some input has a gradient.
    dtype = next(module.parameters()).dtype
    padding = chosen == PADDING
    given, told = records.features[chosen], records.labels[chosen]
    given[padding], told[padding] = 0.0, 0.0
    features = torch.from_numpy(given).to(dtype).requires_grad_()
    labels = torch.from_numpy(told).to(dtype)
    logits = module(features)
    if logits.shape != (len(chosen), records.logits):
        raise ConfigurationError(
            f"model: expected {records.logits} outputs a record for {records.classes} classes, got "
            f"{list(logits.shape[1:])}; give the model as many outputs as the job's label asks for"
        )
    if records.classes == 2:
        return binary_cross_entropy_with_logits(logits.squeeze(-1), labels, reduction="none")
    return cross_entropy(logits, labels.long(), reduction="none")
