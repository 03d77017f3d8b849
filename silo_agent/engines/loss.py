"""The one loss of a job, as a sum over records: a mean, or class weights, would couple them.

Which it is follows from what the labels are, and so from the job's public data schema: cross-entropy of
classes, squared error of a number, Dice of a mask, −log-likelihood of a survival time. Cox's likelihood alone
is of a silo's records together: ``mean_loss`` knows it, and engines of DP refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from privacy.errors import ConfigurationError
from privacy.labels import LabelKind
from silo_agent.data.records import Records
from silo_agent.engines.place import Precision, multiplied

PADDING: Final = -1
"""In the place of a row's number: a public record of zeros, which fills a pass up to its shape."""
DICE_SMOOTHING: Final = 1.0
"""Added above and below the line: an empty mask has a loss, which falls as fewer pixels are predicted."""


def summed_loss(
    module: nn.Module, records: Records, chosen: NDArray[np.intp], precision: Precision = "float32"
) -> torch.Tensor:
    """Σ over the chosen records of their ``losses``: a scalar with a graph."""
    return losses(module, records, chosen, precision).sum()


def mean_loss(module: nn.Module, records: Records, chosen: NDArray[np.intp]) -> torch.Tensor:
    """What training without DP descends: the mean of ``losses``, or the Cox loss of the chosen records.

    The latter is −log of the partial likelihood among them (Breslow 1974), over how many they are: over silos
    weighted by their records, the mean is that of a model stratified by silo.
    """
    if records.kind != "cox":
        return summed_loss(module, records, chosen) / len(chosen)
    outputs, labels = _outputs(module, records, chosen)
    return _cox(outputs.squeeze(-1), labels[:, 0], labels[:, 1]) / len(chosen)


def losses(
    module: nn.Module, records: Records, chosen: NDArray[np.intp], precision: Precision = "float32"
) -> torch.Tensor:
    """The loss of each chosen record, or ``PADDING``, by itself: [chosen], with a graph.

    Args:
        precision: of the products in the module's layers; the loss itself has the parameters'.

    Raises:
        ConfigurationError: the model has another number of outputs, or no record has a loss by itself.
    """
    return record_losses(*_outputs(module, records, chosen, precision), records.kind, records.classes)


def record_losses(
    outputs: torch.Tensor, labels: torch.Tensor, kind: LabelKind, classes: int = 2
) -> torch.Tensor:
    """Each record's loss, [n], of outputs [n, logits] and labels as ``Records`` holds them, of one type.

    Raises:
        ConfigurationError: the kind's loss is not one of records: ``cox``.
    """
    if kind == "cox":
        raise ConfigurationError(
            "data.label: the Cox partial likelihood has no loss of one record, so none can be clipped; under "
            "DP write loss: exponential"
        )
    if kind == "classes" and classes > 2:
        return cross_entropy(outputs, labels.long(), reduction="none")
    return _LOSSES[kind](outputs, labels)


def _outputs(
    module: nn.Module, records: Records, chosen: NDArray[np.intp], precision: Precision = "float32"
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model says of the chosen records, [chosen, logits], and their labels."""
    # Opacus' hooks ask that some input has a gradient.
    first = next(module.parameters())
    device, dtype = first.device, first.dtype
    padding = chosen == PADDING
    given, told = records.features[chosen], records.labels[chosen]
    given[padding], told[padding] = 0.0, 0.0
    features = torch.from_numpy(given).to(device, dtype).requires_grad_()
    labels = torch.from_numpy(told).to(device, dtype)
    with multiplied(device, precision):
        outputs = module(features).to(dtype)
    if outputs.shape != (len(chosen), records.logits):
        raise ConfigurationError(
            f"model: expected {records.logits} outputs a record for {records.told}, got "
            f"{list(outputs.shape[1:])}; give the model as many outputs as the job's label asks for"
        )
    return outputs, labels


def _binary(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return binary_cross_entropy_with_logits(outputs.squeeze(-1), labels, reduction="none")


def _squared(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.squeeze(-1) - labels).square()


def _dice(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """1 − (2·Σ p·y + s) / (Σ p + Σ y + s) over the pixels of one record, never of a batch.

    Milletari et al. 2016 have squares below the line; without them it is as common.
    """
    chances = outputs.sigmoid()
    both = (chances * labels).sum(1)
    return 1.0 - (2.0 * both + DICE_SMOOTHING) / (chances.sum(1) + labels.sum(1) + DICE_SMOOTHING)


def _exponential(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """t·e^η − d·η: minus the log-likelihood of a time t, with d = 1 at an event, under the hazard e^η."""
    hazard = outputs.squeeze(-1)
    return labels[:, 0] * hazard.exp() - labels[:, 1] * hazard


def _cox(hazards: torch.Tensor, times: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """−Σ over events of η − log Σ e^η over all at risk then; events at one time share their risk set."""
    order = torch.argsort(times, descending=True)
    hazards, times, events = hazards[order], times[order], events[order]
    at_risk = torch.logcumsumexp(hazards, dim=0)
    last = torch.searchsorted(-times, -times, right=True) - 1
    return (events * (at_risk[last] - hazards)).sum()


_LOSSES: Final[Mapping[LabelKind, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = MappingProxyType(
    {"classes": _binary, "real": _squared, "mask": _dice, "exponential": _exponential}
)
