"""Recurrent layers made of Linear ones, for adapters of silos: torch's own hide the gates engines must see.

Weights are torch's, in torch's order: ``ih`` holds what nn.LSTM calls weight_ih_l0 and bias_ih_l0, ``hh`` the
other two. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

import torch
from torch import nn

from privacy.errors import ConfigurationError

Cell = Literal["rnn", "lstm", "gru"]
_State = tuple[torch.Tensor, torch.Tensor]
"""What is passed on and, in an LSTM, what the cell remembers."""


class Recurrent(nn.Module):
    """One layer over time, from zeros: float[n, T, inputs] → float[n, T, width]; records are rows."""

    def __init__(self, cell: Cell, inputs: int, width: int) -> None:
        """
        Raises:
            ConfigurationError: no such cell.
        """
        super().__init__()
        if cell not in _GATES:
            raise ConfigurationError(f"cell: expected one of {', '.join(_GATES)}, got {cell!r}")
        self.width = width
        self._next = _NEXT[cell]
        self.ih = nn.Linear(inputs, _GATES[cell] * width)
        self.hh = nn.Linear(width, _GATES[cell] * width)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The state after each time."""
        zeros = given.new_zeros(len(given), self.width)
        state, states = (zeros, zeros), []
        # All inputs at once, one call: only what depends on the time before goes step by step.
        for entered in self.ih(given).unbind(1):
            state = self._next(entered, self.hh(state[0]), state)
            states.append(state[0])
        return torch.stack(states, dim=1)


def _rnn(entered: torch.Tensor, passed: torch.Tensor, before: _State) -> _State:
    return torch.tanh(entered + passed), before[1]


def _lstm(entered: torch.Tensor, passed: torch.Tensor, before: _State) -> _State:
    let_in, forget, new, let_out = (entered + passed).chunk(4, dim=1)
    remembered = torch.sigmoid(forget) * before[1] + torch.sigmoid(let_in) * torch.tanh(new)
    return torch.sigmoid(let_out) * torch.tanh(remembered), remembered


def _gru(entered: torch.Tensor, passed: torch.Tensor, before: _State) -> _State:
    (reset_in, update_in, new_in), (reset, update, new) = entered.chunk(3, dim=1), passed.chunk(3, dim=1)
    kept = torch.sigmoid(update_in + update)
    fresh = torch.tanh(new_in + torch.sigmoid(reset_in + reset) * new)
    return (1 - kept) * fresh + kept * before[0], before[1]


_GATES: Final[Mapping[str, int]] = MappingProxyType({"rnn": 1, "lstm": 4, "gru": 3})
_NEXT: Final[Mapping[str, Callable[[torch.Tensor, torch.Tensor, _State], _State]]] = MappingProxyType(
    {"rnn": _rnn, "lstm": _lstm, "gru": _gru}
)
