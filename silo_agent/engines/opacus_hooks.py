"""Per-record gradients by Opacus' hooks, summed by unit, clipped and summed by us in float64.

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
from silo_agent.engines.engine import CLIP_MARGIN, FLOAT64_ROUNDING
from silo_agent.engines.loss import summed_loss
from silo_agent.engines.opacus_state import forget, hooked

_GRADIENTS_IN_MEMORY: Final = 1 << 25
"""Per-record gradient coordinates held at once (384 MiB); larger samples are clipped in several goes."""


class OpacusHooks:
    """Works for every layer Opacus has a rule for."""

    name = "opacus_hooks"
    sum_rounding = FLOAT64_ROUNDING

    def __init__(self, module: nn.Module, most: int | None = None) -> None:
        """
        Args:
            most: records whose gradients are in memory together.

        Raises:
            ConfigurationError: the model has layers (such as BatchNorm) without per-record gradients.
        """
        faults = ModuleValidator.validate(module, strict=False)
        if faults:
            raise ConfigurationError(f"model: it cannot be trained privately: {faults[0]}")
        self.module = module
        self._most = most
        self._wrapped = GradSampleModule(module, loss_reduction="sum", strict=False)
        forget(self._wrapped)
        self._parameters = list(module.parameters())
        self._size = sum(parameter.numel() for parameter in self._parameters)

    def clipped_sum(self, records: Records, sample: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        """As ``StepEngine``, chunk by chunk.

        Raises:
            ConfigurationError: a layer has gradients of something else than records.
        """
        total = np.zeros(self._size)
        for rows in self._chunks(records, sample):
            with hooked(self._wrapped):
                torch.autograd.backward(summed_loss(self._wrapped, records, rows.ravel()))
                total += self._clipped(rows.shape, clip * CLIP_MARGIN)
        return total

    def _clipped(self, shape: tuple[int, ...], clip: float) -> NDArray[np.float64]:
        units, each = shape
        samples = [self._by_unit(parameter, units, each) for parameter in self._parameters]
        finite = torch.stack([sample.isfinite().all(1) for sample in samples]).all(0)
        for sample in samples:
            sample[~finite] = 0.0
        # A plain sum of squares, pairwise in float64, neither overflows nor loses a float32 gradient.
        norms = torch.stack([sample.double().square().sum(1) for sample in samples]).sum(0).sqrt()
        scales = clip / norms.clamp(min=clip)
        total: NDArray[np.float64] = torch.cat([scales @ sample.double() for sample in samples]).cpu().numpy()
        return total

    def _by_unit(self, parameter: nn.Parameter, units: int, each: int) -> torch.Tensor:
        """The parameter's gradients, summed over each unit's records: [units, size of the parameter]."""
        sample: torch.Tensor | None = getattr(parameter, "grad_sample", None)
        if sample is None:  # frozen, or not in the loss
            return torch.zeros(units, parameter.numel(), dtype=parameter.dtype, device=parameter.device)
        if len(sample) != units * each:
            # Layers that see tokens, say, as a batch would each be clipped by themselves.
            raise ConfigurationError(
                "model: expected one gradient a record; keep records apart in the first dimension of every "
                "layer's input"
            )
        if each == 1:
            return sample.flatten(1)
        return sample.view(units, each, -1).sum(1, dtype=torch.float64)

    def _chunks(self, records: Records, sample: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        for rows in records.in_equal_shares(sample):
            size = _GRADIENTS_IN_MEMORY // (self._size * rows.shape[1])
            if self._most is not None:
                size = min(size, self._most // rows.shape[1])
            size = max(1, size)
            for start in range(0, len(rows), size):
                yield rows[start : start + size]
