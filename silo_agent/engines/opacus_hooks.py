"""Per-record gradients by Opacus' hooks, clipped and summed by us in float64; the only door to Opacus.

Opacus clips by float32 norms. Their sums of squares lose small terms: over 10^7 equal coordinates the norm
comes out 0.8 % too short, so a record could reach 1.008 · C while C is charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.loss import summed_loss

CLIP_MARGIN: Final = 1.0 - 1e-12
"""float64 norms and products round by far less; clipping this much tighter keeps each record within C."""
_GRADIENTS_IN_MEMORY: Final = 1 << 25
"""Per-record gradient coordinates held at once (384 MiB); larger samples are clipped in several goes."""


class OpacusHooks:
    """Works for every layer Opacus has a rule for."""

    name = "opacus_hooks"

    def __init__(self, module: nn.Module) -> None:
        """
        Raises:
            ConfigurationError: the model has layers (such as BatchNorm) without per-record gradients.
        """
        faults = ModuleValidator.validate(module, strict=False)
        if faults:
            raise ConfigurationError(f"model: it cannot be trained privately: {faults[0]}")
        self._wrapped = GradSampleModule(module, loss_reduction="sum")
        self._parameters = list(module.parameters())
        self._size = sum(parameter.numel() for parameter in self._parameters)

    def clipped_sum(self, records: Records, sample: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        """As ``StepEngine``, chunk by chunk."""
        total = np.zeros(self._size)
        for chunk in self._chunks(sample):
            torch.autograd.backward(summed_loss(self._wrapped, records, chunk))
            total += self._clipped(clip * CLIP_MARGIN)
            for parameter in self._parameters:
                parameter.grad_sample = None  # type: ignore[attr-defined]  # Opacus hangs it there
                parameter.grad = None
        return total

    def _clipped(self, clip: float) -> NDArray[np.float64]:
        samples = [parameter.grad_sample.flatten(1) for parameter in self._parameters]  # type: ignore[attr-defined]  # as above
        finite = torch.stack([sample.isfinite().all(1) for sample in samples]).all(0)
        for sample in samples:
            sample[~finite] = 0.0
        # A plain sum of squares, pairwise in float64, neither overflows nor loses a float32 gradient.
        norms = torch.stack([sample.double().square().sum(1) for sample in samples]).sum(0).sqrt()
        scales = clip / norms.clamp(min=clip)
        total: NDArray[np.float64] = torch.cat([scales @ sample.double() for sample in samples]).numpy()
        return total

    def _chunks(self, sample: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        size = max(1, _GRADIENTS_IN_MEMORY // self._size)
        for start in range(0, len(sample), size):
            yield sample[start : start + size]
