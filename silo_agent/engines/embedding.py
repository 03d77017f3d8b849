"""Gradients of a table of embeddings by unit, without a table for each unit."""

from __future__ import annotations

import torch

from silo_agent.engines.sum_check import SumCheck


class EmbeddingGradients:
    """Row i of a unit's gradient is the sum of δ_t over the positions t that looked row i up.

    Only rows that were looked up are computed; all of it in float64.
    """

    def __init__(
        self,
        parameter: torch.Tensor,
        chosen: torch.Tensor,
        outputs: torch.Tensor,
        units: int,
        padding: int | None,
    ) -> None:
        """
        Args:
            chosen: rows looked up, integers [U·m, …].
            outputs: δ, [U·m, …, D].
            padding: a row without gradient.
        """
        self.parameter = parameter
        size, width = parameter.shape
        owner = torch.arange(units, device=chosen.device).repeat_interleave(chosen.numel() // units)
        # One number for each pair of unit and row.
        pairs, place = torch.unique(owner * size + chosen.flatten(), return_inverse=True)
        self._owner, self._row = pairs // size, pairs % size
        sums = torch.zeros(len(pairs), width, dtype=torch.float64, device=chosen.device)
        self._sums = sums.index_add_(0, place, outputs.reshape(-1, width).double())
        if padding is not None:
            self._sums[self._row == padding] = 0.0
        self.held = self._sums.numel() // units
        self.squares = torch.zeros(units, dtype=torch.float64, device=chosen.device)
        self.squares.index_add_(0, self._owner, self._sums.square().sum(1))

    def weighted(self, factors: torch.Tensor, check: SumCheck | None) -> torch.Tensor:
        """As ``UnitGradients``; always in float64."""
        total = torch.zeros(self.parameter.shape, dtype=torch.float64, device=factors.device)
        return total.index_add_(0, self._row, self._sums * factors[self._owner, None]).flatten()
