"""Opacus' ghost clipping, in float64 on a copy of the module: an oracle of the other engines.

In the module's own precision Opacus' norms come out short, and two backward passes cost more than one; so no
choice falls on it. Two passes: the first for the records' norms, the second of the losses times the factors,
which are ours: Opacus' own loss wrapper leaves a term of regularisation unclipped.
"""

from __future__ import annotations

import copy
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.engine import CLIP_MARGIN, FLOAT64_ROUNDING
from silo_agent.engines.loss import losses
from silo_agent.engines.opacus_state import forget, hooked, no_warning_of_integers

_RECORDS: Final = 256
"""Most records in one pass."""


class OpacusGhost:
    """For models whose parameters are used once, and records that are their own units."""

    name = "opacus_ghost"
    sum_rounding = FLOAT64_ROUNDING

    def __init__(self, module: nn.Module, precision: torch.dtype = torch.float64) -> None:
        """
        Args:
            precision: of the copy; float32 is for timing alone.
        """
        self.module = module
        self._copy = copy.deepcopy(module).to(precision)
        self._size = sum(parameter.numel() for parameter in module.parameters())
        self._wrapped = GradSampleModuleFastGradientClipping(
            self._copy, loss_reduction="sum", strict=False, use_ghost_clipping=True
        )
        forget(self._wrapped)

    def clipped_sum(self, records: Records, sample: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        """As ``StepEngine``.

        Raises:
            ConfigurationError: units own several records, whose norms do not add up.
        """
        if records.units is not None:
            raise ConfigurationError("records: ghost clipping knows one record a unit")
        with torch.no_grad():
            for copied, parameter in zip(self._copy.parameters(), self.module.parameters(), strict=True):
                copied.copy_(parameter)
        total = np.zeros(self._size)
        for start in range(0, len(sample), _RECORDS):
            total += self._clipped(records, sample[start : start + _RECORDS], clip * CLIP_MARGIN)
        return total

    def _clipped(self, records: Records, rows: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        with hooked(self._wrapped):
            each = losses(self._wrapped, records, rows)
            torch.autograd.backward(each.sum(), retain_graph=True)
            norms = self._wrapped.get_norm_sample().double()
        finite = norms.isfinite().numpy()
        if not finite.all():
            kept = rows[finite]
            return self._clipped(records, kept, clip) if len(kept) else np.zeros(self._size)
        with no_warning_of_integers():
            torch.autograd.backward((each * (clip / norms.clamp(min=clip))).sum())
        pieces = [self._gradient(parameter) for parameter in self._copy.parameters()]
        self._copy.zero_grad()
        summed: NDArray[np.float64] = torch.cat(pieces).numpy()
        return summed

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            return torch.zeros(parameter.numel(), dtype=torch.float64)
        return parameter.grad.double().flatten()
