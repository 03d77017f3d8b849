"""Sum claims: what float32 products lose is found, and sums that lost too much are computed again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn

from silo_agent.data.records import Records
from silo_agent.engines import products, sum_check
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.engine import FLOAT32_ROUNDING, FLOAT64_ROUNDING, private_sum
from silo_agent.engines.sum_check import DIRECTIONS, SumCheck
from tests.unit.silo_agent.engine_models import clipped_one_by_one

WIDTH = 300


def _wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 200), nn.Tanh(), nn.Linear(200, 1)).train()


def _records(count: int, aligned: bool = False) -> Records:
    random = np.random.default_rng(0)
    features = random.uniform(-1, 1, (count, WIDTH)).astype(np.float32)
    if aligned:
        features[:] = features[0]
    return Records(features, np.ones(count, dtype=np.float32))


def test_the_probability_that_an_error_escapes_is_what_the_module_says() -> None:
    """The worst error has rank one: there it is the lower tail of χ²_k, which the bound must cover."""
    square = sum_check._CAUGHT**2
    bound = (square * math.exp(1 - square)) ** (DIRECTIONS / 2)
    assert chi2.cdf(square * DIRECTIONS, DIRECTIONS) <= bound < 2.0**-51


@pytest.mark.parametrize("rank", [1, 5])
def test_an_error_is_bounded_from_above_and_not_by_far_too_much(rank: int) -> None:
    random = torch.Generator().manual_seed(rank)
    left, right = torch.randn(30, rank, generator=random), torch.randn(rank, 40, generator=random)
    error = (left @ right).double()
    parameter = torch.zeros(30, 40)
    for _ in range(50):
        check = SumCheck()
        check.expect(parameter, torch.zeros(30, DIRECTIONS, dtype=torch.float64))
        check.directions(40)
        bound = check.largest_error({parameter: error.flatten()})
        assert float(error.norm()) <= bound <= 100 * float(error.norm())


def test_sums_of_float32_products_are_as_close_to_exact_ones_as_promised() -> None:
    module, records = _wide(), _records(256, aligned=True)
    engine = BookKeeping(module)
    assert engine.sum_rounding == FLOAT32_ROUNDING
    got = engine.clipped_sum(records, np.arange(256), 1.0)
    exact = engine._summed(records, np.arange(256), 1.0, None).numpy()
    assert np.linalg.norm(got - exact) <= FLOAT32_ROUNDING / 2


def test_a_sum_that_lost_too_much_is_computed_again_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: float32 products that are wrong in one coordinate. Without the check they would go out."""
    module, records = _wide(), _records(40)
    engine = BookKeeping(module)
    right = engine.clipped_sum(records, np.arange(40), 1.0)
    product = products._product

    def wrong(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        result = product(outputs, inputs)
        if result.dtype == torch.float32:
            result[0, 3, 7] += 0.01
        return result

    monkeypatch.setattr(products, "_product", wrong)
    assert np.linalg.norm(engine.clipped_sum(records, np.arange(40), 1.0) - right) < 1e-4
    unchecked = engine._summed(records, np.arange(40), 1.0, SumCheck()).numpy()
    assert np.linalg.norm(unchecked - right) > 5e-3


def test_small_models_are_summed_in_float64_and_keep_nearly_all_of_the_clip() -> None:
    engine = BookKeeping(nn.Linear(5, 1))
    assert engine.sum_rounding == FLOAT64_ROUNDING == 2.0**-20


def test_with_its_roundings_one_unit_moves_a_private_sum_by_at_most_the_clip() -> None:
    module = _wide()
    records = _records(257, aligned=True)
    engine = BookKeeping(module)
    for clip in (1e-3, 1.0):
        moved = private_sum(engine, records, np.arange(257), clip) - private_sum(
            engine, records, np.arange(256), clip
        )
        assert np.linalg.norm(moved) <= clip


def test_a_unit_whose_terms_nearly_cancel_is_not_stretched_beyond_what_sums_can_bear() -> None:
    """Two positions that cancel to 1e-6 of their lengths: scaled up to C their terms would be 10⁶ · C."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Unflatten(1, (2, 50)), nn.Linear(50, 40), nn.Flatten(), nn.Linear(80, 1)
    ).double()
    with torch.no_grad():
        last = module[3]
        last.weight[:, 40:] = last.weight[:, :40]
        last.weight *= 1e3
    row = np.random.default_rng(0).uniform(-1, 1, 50).astype(np.float32)
    features = np.concatenate([row, -row * np.float32(1 + 1e-6)])[None]
    records = Records(features, np.ones(1, dtype=np.float32))
    engine = BookKeeping(module)
    got = engine.clipped_sum(records, np.arange(1), 1e-3)
    assert np.linalg.norm(got) <= 1e-3
    fair = clipped_one_by_one(module, records, np.arange(1), 1e-3)
    assert np.linalg.norm(got) <= np.linalg.norm(fair) * (1 + 1e-9)
