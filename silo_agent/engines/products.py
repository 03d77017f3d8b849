"""Gradients of a weight that is a sum of outer products, one unit at a time, or never one at a time.

A linear map, and a convolution once its input is unfolded, has per unit the gradient G = Σ_t δ_t a_tᵀ, with T
positions t (of all the unit's records), inputs a_t of length D and output gradients δ_t of length P. Two ways
(Li et al. 2021, arXiv 2110.05679, §4; Bu et al. 2022, arXiv 2210.00038, §3):

- *Gram form*, where T²(P + D) ≪ P·D: ‖G‖² = Σ_ts (a_t·a_s)(δ_t·δ_s); the sum of clipped gradients is one
  product over all units, and no unit's gradient is ever in memory;
- *instances*: each G is computed and kept.

Norms are float64 and never too short for what is added: see ``GramForm``. Knows no layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import torch

from silo_agent.engines.gram import gram_squares
from silo_agent.engines.sum_check import SumCheck

_SMALL: Final = 1 << 14
"""Weights of so many elements are multiplied in float64, which costs nothing there."""
_PRODUCTS: Final = 16
"""A multiplication of the Gram form takes about 1/16 of the time of one element of G in memory (measured)."""
BLOCK: Final = 1 << 17
"""Elements that are worked on at once."""
_CACHED: Final = 1 << 15
"""float64 numbers that stay in the fastest cache but one, between being widened and squared."""
_TOGETHER: Final = 8
"""Units whose instances are added up in float32."""
_HALF_EPS: Final = torch.finfo(torch.float32).eps / 2
_LEAST: Final = torch.finfo(torch.float32).tiny
Columns = Callable[[slice], torch.Tensor]
"""Inputs of some units: [U, R, D, T], for R groups of channels that do not mix."""


class UnitGradients(Protocol):
    """One parameter's gradients of all units in a pass."""

    parameter: torch.Tensor
    squares: torch.Tensor
    """float64[U]: at least the squared norm of what ``weighted`` adds for each unit at factor 1."""
    held: int
    """Elements kept a unit."""

    def weighted(self, factors: torch.Tensor, check: SumCheck | None) -> torch.Tensor:
        """Σ over units of factor · gradient, flat. ``factors`` is float64[U].

        In float64, or in float32 if ``check`` is given what the sum should be.
        """


def is_large(parameter: torch.Tensor) -> bool:
    """Whether sums of products over units may be float32: where float64 would cost something."""
    return parameter.dtype == torch.float32 and parameter.numel() > _SMALL


class Instances:
    """Gradients that are in memory, one a unit.

    Sums of large weights are float32 over n units at a time, and float64 over those, if a check is there that
    notes by how much they may be off: one product and n additions err by at most (n + 1) · u · f‖G‖ for each
    unit (Higham 2002, §3.1), and the factor's own rounding by |f̃ − f|·‖G‖.
    """

    def __init__(self, parameter: torch.Tensor, *gradients: torch.Tensor) -> None:
        """
        Args:
            gradients: [U, …], in the parameter's order; or, of a convolution, one for each row of its kernel,
                [U, P, C · k] for a parameter [P, C, rows, k].
        """
        self.parameter = parameter
        self._parts = [one.flatten(1) for one in gradients]
        self.held = sum(one.shape[1] for one in self._parts)
        self.squares = sum((squares_of(one) for one in self._parts[1:]), squares_of(self._parts[0]))

    def weighted(self, factors: torch.Tensor, check: SumCheck | None) -> torch.Tensor:
        """As ``UnitGradients``."""
        rounded = factors.float()
        coarse = check is not None and self._may_be_coarse(rounded, factors, check)
        sums = [_by_eights(part, rounded) if coarse else _wide_sum(part, factors) for part in self._parts]
        if len(sums) == 1:
            return sums[0]
        outputs, channels, _, width = self.parameter.shape
        rows = torch.stack(sums).view(len(sums), outputs, channels, width)
        return rows.permute(1, 2, 0, 3).flatten()

    def _may_be_coarse(self, rounded: torch.Tensor, factors: torch.Tensor, check: SumCheck) -> bool:
        if not is_large(self.parameter) or self._parts[0].dtype != torch.float32:
            return False
        error = (rounded.double() - factors).abs() + (_TOGETHER + 1) * _HALF_EPS * rounded.double()
        # Terms too small for float32 lose its least normal number each, at most.
        lost = len(factors) * self.held * _LEAST
        return check.allows(float((error * self.squares.sqrt()).sum()) + lost)


def _by_eights(part: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(part.shape[1], dtype=torch.float64, device=part.device)
    for some in blocks(len(part), 1, _TOGETHER):
        total += torch.mv(part[some].t(), factors[some])
    return total


def _wide_sum(part: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(part.shape[1], dtype=torch.float64, device=part.device)
    for block in blocks(len(part), part.shape[1], 2 * BLOCK):
        total.addmv_(part[block].double().t(), factors[block])
    return total


class GramForm:
    """Gradients that are never computed one by one.

    Rounding of a unit's own products and their sum over t is at most γ · Σ_t ‖a_t‖‖δ_t‖, γ = (T + 3) · u with
    u the unit roundoff of the product (Higham 2002, §3.1: T additions, and one rounding each of factor, δ and
    product). It is added to the norm, so that what a unit adds is within C even where its terms cancel. Sums
    over units round as well: ``sum_check`` bounds it where they are float32.
    """

    held = 0

    def __init__(self, parameter: torch.Tensor, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        """
        Args:
            inputs: a, [U, R, D, T].
            outputs: δ, [U, R, P, T].
        """
        self.parameter = parameter
        if not is_large(parameter):
            inputs, outputs = inputs.double(), outputs.double()
        self._inputs, self._outputs = inputs, outputs
        slack = (inputs.shape[3] + 3) * torch.finfo(inputs.dtype).eps / 2
        if inputs.shape[1] * inputs.shape[3] == 1:
            self.squares = squares_of(inputs.flatten(1)) * squares_of(outputs.flatten(1)) * (1 + slack) ** 2
            return
        self.squares = gram_squares(inputs, outputs, slack)

    def weighted(self, factors: torch.Tensor, check: SumCheck | None) -> torch.Tensor:
        """As ``UnitGradients``; one product in the precision of the inputs if a check is given, or the weight
        is small."""
        outputs, inputs = self._scaled(factors.to(self._outputs.dtype)[:, None, None, None])
        if inputs.dtype != torch.float64:
            if check is None:
                return self._in_float64(outputs, inputs)
            directions = check.directions(inputs.shape[2]).to(inputs.device)
            check.expect(self.parameter, self._projected(outputs, inputs, directions))
        return _product(outputs, inputs).flatten()

    def _scaled(self, factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """δ and a, the shorter of them times the factors."""
        if self._outputs.shape[2] < self._inputs.shape[2]:
            return self._outputs * factors, self._inputs
        return self._outputs, self._inputs * factors

    def _in_float64(self, outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(self.parameter.numel(), dtype=torch.float64, device=outputs.device)
        for one in self._blocks():
            total += _product(outputs[one].double(), inputs[one].double()).flatten()
        return total

    def _projected(
        self, outputs: torch.Tensor, inputs: torch.Tensor, directions: torch.Tensor
    ) -> torch.Tensor:
        """What the product should be along the directions, float64[R·P, k]."""
        groups, rows = outputs.shape[1:3]
        total = torch.zeros(groups, rows, directions.shape[1], dtype=torch.float64, device=outputs.device)
        for one in self._blocks():
            along = inputs[one].double().transpose(-1, -2) @ directions
            total += _product(outputs[one].double(), along.transpose(-1, -2))
        return total.flatten(0, 1)

    def _blocks(self) -> Iterator[slice]:
        _, groups, width, positions = self._inputs.shape
        return blocks(len(self._inputs), groups * positions * (width + self._outputs.shape[2]), 4 * BLOCK)


def _product(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Σ_u Σ_t δ aᵀ: [U, R, P, T], [U, R, D, T] → [R, P, D]."""
    return torch.matmul(outputs.permute(1, 2, 0, 3).flatten(2), inputs.permute(1, 0, 3, 2).flatten(1, 2))


def outer_products(parameter: torch.Tensor, columns: Columns, outputs: torch.Tensor) -> UnitGradients:
    """The cheaper form of G = Σ_t δ_t a_tᵀ.

    Args:
        outputs: δ, [U, R, P, T]; the parameter is [R·P, D, …].
    """
    units, groups, rows, positions = outputs.shape
    width = parameter.numel() // (groups * rows)
    if in_gram_form(parameter, groups, positions):
        return GramForm(parameter, columns(slice(0, units)), outputs)
    return Instances(parameter, instances(columns, outputs, width))


def by_kernel_row(parameter: torch.Tensor, rows: list[Columns], outputs: torch.Tensor) -> UnitGradients:
    """The instances of a convolution's G, whose inputs for one row of its kernel are ``Columns`` each."""
    width = parameter[0].numel() // len(rows)
    return Instances(parameter, *(instances(columns, outputs, width) for columns in rows))


def in_gram_form(parameter: torch.Tensor, groups: int, positions: int) -> bool:
    """Whether the Gram form is the cheaper one; by shapes alone."""
    rows, width = len(parameter) // groups, parameter[0].numel()
    return positions == 1 or positions**2 * (rows + width) < _PRODUCTS * rows * width


def instances(columns: Columns, outputs: torch.Tensor, width: int) -> torch.Tensor:
    """Each unit's G: [U, R·P·D], of what ``outer_products`` is given, and D."""
    units, groups, rows, positions = outputs.shape
    made = torch.empty(units * groups, rows, width, dtype=outputs.dtype, device=outputs.device)
    for block in blocks(units, groups * positions * width):
        inputs, back = columns(block).flatten(0, 1), outputs[block].flatten(0, 1)
        out = made[block.start * groups : block.stop * groups]
        torch.bmm(back, inputs.transpose(-1, -2), out=out)
    return made.view(units, -1)


def blocks(count: int, elements: int, most: int = BLOCK) -> Iterator[slice]:
    """Stretches of units, of so many elements each, that fit a processor's cache."""
    size = max(1, most // max(1, elements))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def squares_of(values: torch.Tensor) -> torch.Tensor:
    """Squared norms of rows, in float64: float64[U]."""
    units, size = values.shape
    if size <= _CACHED or values.is_cuda:
        small = (values[one] for one in blocks(units, size))
        norms = [torch.linalg.vector_norm(one, dim=1, dtype=torch.float64) for one in small]
        return torch.cat(norms).square()
    squares = torch.empty(units, dtype=torch.float64, device=values.device)
    for unit, row in enumerate(values):
        parts = (part.double() for part in row.split(_CACHED))
        squares[unit] = torch.stack([torch.dot(part, part) for part in parts]).sum()
    return squares
