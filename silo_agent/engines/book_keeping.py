"""Book-keeping: one forward and one backward pass a step, and no second gradient of any weight.

Bu et al. 2022, arXiv 2210.00038, Algorithm 1: (1) the forward pass keeps what went into each layer; (2) one
backward pass of the summed loss gives the gradients by each layer's output, and of no weight; (3) from both,
each unit's norm; (4) its factor; (5) the sum of the scaled gradients, one product a layer.

Passes have one shape a job: a sample's last is filled up with a public record of zeros, whose factor is zero.
Kernels choose by the shape in which order they add; so a record's gradient would depend, in its last bits, on
how many others were drawn, and a model may be made to blow such bits up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.engine import CLIP_MARGIN, FLOAT32_ROUNDING, FLOAT64_ROUNDING
from silo_agent.engines.layers import CALLED_AGAIN, RULES, as_positions, why_not
from silo_agent.engines.loss import PADDING, summed_loss
from silo_agent.engines.place import Precision, assert_full_products
from silo_agent.engines.products import UnitGradients, is_large
from silo_agent.engines.sum_check import SumCheck

_RECORDS: Final = 256
"""Most records in one pass: their activations are in memory together, as in ordinary training."""
_SHAPES: Final = (16, 64, _RECORDS)
"""Records in a pass of jobs that draw few, some or many."""
_HELD: Final = 1 << 26
"""Most gradient coordinates that are in memory together (256 MiB)."""


def pass_shape(expected: float) -> int:
    """Records in a pass, by the public number that a step is expected to draw: half of them, or less."""
    return next((shape for shape in _SHAPES if expected <= shape // 2), _RECORDS)


@dataclass(frozen=True)
class _Call:
    """One layer's part of a forward pass."""

    given: torch.Tensor
    output: torch.Tensor
    versions: tuple[int, int]
    """How often both had been changed in place."""


class BookKeeping:
    """For modules whose parameters all belong to layers in ``layers.RULES``, each called once a pass.

    Linear layers may be called several times, as those of recurrent cells are: a unit's gradient is the sum
    over calls, which count as further positions.
    """

    name = "book_keeping"

    precision: Precision = "float32"
    """Of the products in layers, forward and backward; what is summed is what they saw (``place``)."""

    def __init__(self, module: nn.Module, shape: int | None = None) -> None:
        """
        Args:
            shape: records in a pass, whoever is drawn.

        Raises:
            ConfigurationError: a layer has no rule, or two layers share a parameter.
        """
        self.module = module
        self._places: dict[torch.Tensor, slice] = {}
        self._names: dict[nn.Module, str] = {}
        self._calls: dict[nn.Module, list[_Call]] | None = None
        start = 0
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if parameter in self._places:
                raise ConfigurationError(f"model.{name}: book-keeping knows no shared parameters")
            self._places[parameter] = slice(start, start + parameter.numel())
            start += parameter.numel()
        for name, layer in module.named_modules():
            if not any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
                continue
            if reason := why_not(layer):
                raise ConfigurationError(f"model.{name}: book-keeping has no rule for it: {reason}")
            self._names[layer] = name
        self._device = next(module.parameters()).device
        self._shape = _RECORDS if shape is None else shape
        self._size = start
        self._fitting: dict[int, int] = {}
        large = any(is_large(parameter) for parameter in self._places)
        self.sum_rounding = FLOAT32_ROUNDING if large else FLOAT64_ROUNDING
        for layer in self._names:
            layer.register_forward_hook(self._keep)

    def clipped_sum(self, records: Records, sample: NDArray[np.intp], clip: float) -> NDArray[np.float64]:
        """As ``StepEngine``, pass by pass.

        Raises:
            ConfigurationError: a layer is called twice, changed in place, or does not see records as rows.
        """
        assert_full_products()
        check = SumCheck(clip * self.sum_rounding / 4)
        total = self._summed(records, sample, clip * CLIP_MARGIN, check)
        by_parameter = {parameter: total[place] for parameter, place in self._places.items()}
        if not check.largest_error(by_parameter) <= clip * self.sum_rounding / 2:
            total = self._summed(records, sample, clip * CLIP_MARGIN, None)
        summed: NDArray[np.float64] = total.cpu().numpy()
        return summed

    def _summed(
        self, records: Records, sample: NDArray[np.intp], clip: float, check: SumCheck | None
    ) -> torch.Tensor:
        total = torch.empty(self._size, dtype=torch.float64, device=self._device)
        written: set[torch.Tensor] = set()
        for rows in self._passes(records, sample):
            for parameter, part in self._clipped(records, rows, clip, check):
                place = total[self._places[parameter]]
                if parameter in written:
                    place.add_(part.double())
                else:
                    # Large vectors: filling with zeros and adding are a pass over memory each.
                    place.copy_(part)
                written.add(parameter)
        for parameter, where in self._places.items():
            if parameter not in written:
                total[where] = 0.0
        return total

    def _clipped(
        self, records: Records, rows: NDArray[np.intp], clip: float, check: SumCheck | None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One pass: parameters, and the sums of their clipped gradients."""
        gradients = self._unit_gradients(records, rows)
        if not gradients:
            return
        # (3)
        squares = torch.stack([one.squares for one in gradients]).sum(0)
        padding = rows[:, 0] == PADDING
        faulty = ~squares.isfinite().cpu().numpy()
        if (faulty & padding).any():
            raise ConfigurationError(
                "model: expected a finite gradient of a record of zeros, got none; the model has diverged: "
                "lower the learning rate"
            )
        if faulty.any():
            # Zero times NaN is NaN: such units leave the pass, rather than its sum.
            yield from self._clipped(records, np.where(faulty[:, None], PADDING, rows), clip, check)
            return
        # (4)
        factors = clip / squares.sqrt().clamp(min=clip)
        factors[torch.from_numpy(padding).to(self._device)] = 0.0
        # (5)
        for one in gradients:
            yield one.parameter, one.weighted(factors, check)

    @torch.no_grad()
    def _unit_gradients(self, records: Records, rows: NDArray[np.intp]) -> list[UnitGradients]:
        # (1)
        self._calls = {}
        try:
            with torch.enable_grad():
                loss = summed_loss(self.module, records, rows.ravel(), self.precision)
            calls = self._calls
        finally:
            self._calls = None
        for layer, made in calls.items():
            for call in made:
                self._refuse_if_changed(layer, call, rows.size)
        # (2)
        outputs = [call.output for made in calls.values() for call in made]
        backs = iter(torch.autograd.grad(loss, outputs, allow_unused=True))
        gradients: list[UnitGradients] = []
        for layer, made in calls.items():
            seen = [
                (self._whole(call.given.detach()), self._whole(back))
                for call in made
                if (back := next(backs)) is not None
            ]
            if len(seen) == 1:
                gradients.extend(RULES[type(layer)](layer, *seen[0], len(rows)))
            elif seen:
                together = (as_positions([call[side] for call in seen]) for side in (0, 1))
                gradients.extend(RULES[type(layer)](layer, *together, len(rows)))
        return gradients

    def _whole(self, seen: torch.Tensor) -> torch.Tensor:
        """The same numbers, in which sums of them do not lose what few bits would."""
        return seen.float() if seen.dtype == torch.bfloat16 else seen

    def _keep(self, layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if self._calls is None:
            return
        if layer in self._calls and type(layer) not in CALLED_AGAIN:
            raise ConfigurationError(
                f"model.{self._names[layer]}: book-keeping knows layers that are called once, not twice"
            )
        if len(inputs) != 1:
            raise ConfigurationError(f"model.{self._names[layer]}: expected a call with one positional input")
        call = _Call(inputs[0], output, (inputs[0]._version, output._version))
        self._calls.setdefault(layer, []).append(call)

    def _refuse_if_changed(self, layer: nn.Module, call: _Call, rows: int) -> None:
        name = self._names[layer]
        if (call.given._version, call.output._version) != call.versions:
            raise ConfigurationError(
                f"model.{name}: its input or output is changed in place after the call; write inplace=False"
            )
        if len(call.given) != rows or len(call.output) != rows:
            # How many there are is a secret, and messages end in logs.
            raise ConfigurationError(
                f"model.{name}: expected one row a record in its input's first dimension"
            )

    def _passes(self, records: Records, sample: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """Blocks int64[units, records of each], of one shape for units with so many records each."""
        for rows in records.in_equal_shares(sample):
            if not len(rows):
                continue
            each = rows.shape[1]
            size = self._units_in_a_pass(records, each)
            for start in range(0, len(rows), size):
                block = np.full((size, each), PADDING)
                part = rows[start : start + size]
                block[: len(part)] = part
                yield block

    def _units_in_a_pass(self, records: Records, each: int) -> int:
        """By the memory that one unit of records of zeros takes: nobody's record decides it."""
        if each not in self._fitting:
            gradients = self._unit_gradients(records, np.full((1, each), PADDING))
            held = sum(one.held for one in gradients)
            self._fitting[each] = max(1, min(self._shape // each, _HELD // max(1, held)))
        return self._fitting[each]
