"""Recurrent claims: cells made of Linear layers are torch's, are book-kept, and agree with Opacus."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.choice import engine_for
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.models.recurrent import Cell, Recurrent
from tests.unit.silo_agent.engine_models import Kind, clipped_one_by_one, records_for

TIMES, WIDTH, STATE = 5, 3, 4
CELLS: tuple[Cell, ...] = ("rnn", "lstm", "gru")
TORCH = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class _Last(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states[:, -1]


def _built(cell: Cell, layers: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    stack = [Recurrent(cell, WIDTH if place == 0 else STATE, STATE) for place in range(layers)]
    return nn.Sequential(
        nn.Unflatten(1, (TIMES, WIDTH)), *stack, _Last(), nn.Linear(STATE, 1)
    ).double().train()  # fmt: skip


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), clip=st.floats(1e-3, 1e2), count=st.integers(1, 6))
def test_book_keeping_of_cells_agrees_with_opacus_and_with_autograd(
    cell: Cell, layers: int, seed: int, clip: float, count: int
) -> None:
    module = _built(cell, layers, seed)
    records = records_for(Kind(lambda: module, TIMES * WIDTH), count, seed)
    expected = clipped_one_by_one(module, records, np.arange(count), clip)
    ours = BookKeeping(module, 8).clipped_sum(records, np.arange(count), clip)
    hooks = OpacusHooks(_built(cell, layers, seed)).clipped_sum(records, np.arange(count), clip)
    for got in (ours, hooks):
        assert np.linalg.norm(got - expected) <= 1e-9 * np.linalg.norm(expected)


@pytest.mark.parametrize("cell", CELLS)
def test_book_keeping_is_chosen_for_cells(cell: Cell) -> None:
    assert engine_for(_built(cell, 1, 0), TIMES * WIDTH).name == "book_keeping"


@pytest.mark.parametrize("cell", CELLS)
def test_cells_compute_what_torchs_do_with_the_same_weights(cell: Cell) -> None:
    torch.manual_seed(1)
    ours, theirs = Recurrent(cell, WIDTH, STATE), TORCH[cell](WIDTH, STATE, batch_first=True)
    names = [(side, kind) for side in ("ih", "hh") for kind in ("weight", "bias")]
    ours.load_state_dict({f"{side}.{kind}": getattr(theirs, f"{kind}_{side}_l0") for side, kind in names})
    given = torch.randn(6, TIMES, WIDTH)
    torch.testing.assert_close(ours(given), theirs(given)[0], rtol=1e-6, atol=1e-6)


def test_another_cell_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cell: expected one of rnn, lstm, gru, got 'mamba'"):
        Recurrent("mamba", 2, 3)  # type: ignore[arg-type]  # what an adapter might write
