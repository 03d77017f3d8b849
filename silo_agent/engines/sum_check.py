"""How far a step's float32 products may be from the sums they stand for, found by random projections.

The worst case of so many roundings is useless (they never line up), and float64 takes twice the time. So the
error itself is looked at, along directions that the products cannot have known: for E = Ŝ − S and a matrix X
of k columns of N(0, I), ‖E·X‖² is Σ λ_j·χ²_k over the squared singular values λ_j of E, and by Chernoff

    P(‖E·X‖² ≤ c²·k·‖E‖²)  ≤  min_s exp(s·c²·k) · Π(1 + 2sλ_j/‖E‖²)^(−k/2)  ≤  (c²·e^(1−c²))^(k/2),

for Π(1 + x_j) ≥ 1 + Σ x_j: the worst E has rank one. Σ over units of f·δ·aᵀX costs k(P + D) and not P·D.
Freivalds 1979 checks products so; knows no layer and no clip.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from silo_agent.randomness import gaussian

DIRECTIONS: Final = 12
"""k."""
_CAUGHT: Final = 1 / 32
"""c: an error of more than ‖E·X‖/(c·√k) escapes with probability (c²·e^(1−c²))^(k/2) < 2⁻⁵¹ a step."""


class SumCheck:
    """One step's directions, and what its sums should be along them."""

    def __init__(self, most_allowed: float = math.inf) -> None:
        """
        Args:
            most_allowed: of errors that are proven and not looked at, together.
        """
        self._most_allowed = most_allowed
        self._directions = torch.empty(0, DIRECTIONS, dtype=torch.float64, device="cpu")
        self._expected: dict[torch.Tensor, torch.Tensor] = {}
        self._allowed = 0.0

    def directions(self, width: int) -> torch.Tensor:
        """X of one width, float64[width, k], the first rows of one matrix for all parameters.

        So errors of narrower ones, with zeros on the right, stand in one column. Drawn as noise is, by the
        operating system: a model that knew them could hide its error from them.
        """
        missing = width - len(self._directions)
        if missing > 0:
            drawn = torch.from_numpy(gaussian(missing * DIRECTIONS, 1.0)).reshape(missing, DIRECTIONS)
            self._directions = torch.cat([self._directions, drawn])
        return self._directions[:width]

    def allows(self, error: float) -> bool:
        """Whether there is room for a proven bound on the norm of an error; it is noted if so."""
        if not self._allowed + error <= self._most_allowed:
            return False
        self._allowed += error
        return True

    def expect(self, parameter: torch.Tensor, projected: torch.Tensor) -> None:
        """Add the projection of what a pass sums for one parameter, float64[rows, k]."""
        before = self._expected.get(parameter)
        self._expected[parameter] = projected if before is None else before + projected

    def largest_error(self, sums: dict[torch.Tensor, torch.Tensor]) -> float:
        """A bound on the norm of the error of all sums together, wrong once in 2⁵¹ steps.

        Args:
            sums: parameter → its whole sum as computed, float64, in the parameter's order.
        """
        square = 0.0
        for parameter, expected in self._expected.items():
            rows = sums[parameter].reshape(len(expected), -1)
            square += float((rows @ self.directions(rows.shape[1]).to(rows.device) - expected).square().sum())
        return math.sqrt(square / DIRECTIONS) / _CAUGHT + self._allowed
