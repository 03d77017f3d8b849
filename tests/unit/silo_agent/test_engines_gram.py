"""Gram claims: a float32 norm is never below the exact one, seldom above, and has the same bits anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from silo_agent.data.records import Records
from silo_agent.engines import gram
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.gram import MOST_CANCELLED, gram_squares


def _factors(
    seed: int, units: int, positions: int, widths: tuple[int, int], cancelled: float
) -> torch.Tensor:
    """Inputs and outputs together, [U, 1, D + P, T]: the second half of the positions undoes the first."""
    random = torch.Generator().manual_seed(seed)
    half = torch.randn(units, 1, sum(widths), positions // 2, generator=random)
    other = half.clone()
    other[:, :, : widths[0]] *= -(1 - cancelled)
    return torch.cat([half, other], dim=-1)


def _exact(inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    product = outputs.double() @ inputs.double().transpose(-1, -2)
    return product.square().sum((1, 2, 3))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    positions=st.sampled_from([2, 8, 32]),
    widths=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    cancelled=st.sampled_from([1.0, 1e-1, 1e-3, 1e-6]),
    scale=st.sampled_from([1e-22, 1e-3, 1.0, 1e8]),
)
def test_a_norm_is_never_short_and_only_long_where_terms_cancel(
    seed: int, positions: int, widths: tuple[int, int], cancelled: float, scale: float
) -> None:
    inputs, outputs = _factors(seed, 5, positions, widths, cancelled).split(list(widths), dim=2)
    inputs = inputs * scale
    got, exact = gram_squares(inputs, outputs, 0.0), _exact(inputs, outputs)
    assert bool((got >= exact).all())
    if scale >= 1e-3:
        lengths = (inputs.double().norm(dim=2) * outputs.double().norm(dim=2)).sum((1, 2))
        floor = (lengths / MOST_CANCELLED).square()
        assert bool((got <= torch.maximum(exact, floor) * (1 + 2.0**-9)).all())


def test_without_the_doubt_some_norms_come_out_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: units that float32 makes shorter than they are would add more than C."""
    monkeypatch.setattr(gram, "_SECOND_ORDER", 0.0)
    inputs, outputs = _factors(3, 200, 8, (300, 200), 1.0).split([300, 200], dim=2)
    assert bool((gram_squares(inputs, outputs, 0.0) < _exact(inputs, outputs)).any())


def test_the_largest_and_smallest_float32_numbers_do_not_hide_a_gradient() -> None:
    """Squares of 1e-24 vanish in float32; against outputs of 1e18 they are a gradient all the same."""
    inputs = torch.full((2, 1, 50, 4), 1e-24)
    outputs = torch.full((2, 1, 40, 4), 1e18)
    assert bool((gram_squares(inputs, outputs, 0.0) >= _exact(inputs, outputs)).all())


def test_a_norm_has_the_same_bits_wherever_a_unit_stands_and_whoever_else_is_there() -> None:
    units = 40
    inputs, outputs = _factors(5, units, 32, (256, 300), 1.0).split([256, 300], dim=2)
    outputs[7] *= 1e-30  # a unit of a quite different size
    whole = gram_squares(inputs, outputs, 0.0)
    for shift in (1, 13, 39):
        moved = gram_squares(inputs.roll(shift, 0), outputs.roll(shift, 0), 0.0)
        assert torch.equal(moved, whole.roll(shift, 0))
    few, fewer = torch.zeros_like(inputs), torch.zeros_like(outputs)
    few[-1], fewer[-1] = inputs[3], outputs[3]
    assert gram_squares(few, fewer, 0.0)[-1] == whole[3]


@pytest.mark.parametrize("count", [1, 5, 16, 17])
def test_blocks_have_one_length_and_miss_nobody(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "_ELEMENTS", 6)
    blocks = list(gram._equal_blocks(count, 1))
    assert {one.stop - one.start for one in blocks} == {min(count, 6)}
    assert {unit for one in blocks for unit in range(one.start, one.stop)} == set(range(count))


def test_not_a_number_stays_one() -> None:
    inputs, outputs = torch.ones(3, 1, 70, 2), torch.ones(3, 1, 60, 2)
    inputs[1, 0, 5, 1] = torch.nan
    outputs[2, 0, 5, 1] = torch.inf
    assert gram_squares(inputs, outputs, 0.0).isfinite().tolist() == [True, False, False]


def test_positions_in_float32_are_clipped_within_c_in_a_large_layer() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Unflatten(1, (8, 160)), nn.Linear(160, 130), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 130, 1)
    )
    features = np.random.default_rng(0).uniform(-1, 1, (12, 8 * 160)).astype(np.float32)
    records = Records(features, np.ones(12, dtype=np.float32))
    engine = BookKeeping(module.train(), 16)
    for row in range(12):
        length = np.linalg.norm(engine.clipped_sum(records, np.array([row]), 1e-2))
        assert 1e-2 * (1 - 1e-3) < length <= 1e-2
