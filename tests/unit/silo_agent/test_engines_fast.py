"""Claims of the fast paths: kernels row by row, float32 sums with a proven bound, a check of all passes."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

from silo_agent.data.records import Records
from silo_agent.engines import layers, products
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.choice import engine_for
from silo_agent.engines.layers import why_not
from silo_agent.engines.products import Instances, squares_of
from silo_agent.engines.sum_check import SumCheck
from tests.unit.silo_agent.engine_models import Kind, build, clipped_one_by_one, records_for

CONVOLUTIONS = {
    "tall kernel": lambda: nn.Conv2d(2, 3, (3, 2), padding=(1, 0)),
    "apart": lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), dilation=(2, 3), padding=(2, 1)),
    "groups": lambda: nn.Conv2d(2, 4, 3, groups=2, padding="same"),
    "skips rows": lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 1)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("each", [1, 2])
def test_a_kernel_taken_row_by_row_has_the_gradient_of_the_whole(
    name: str, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind(
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 7, 7)), CONVOLUTIONS[name](), nn.Tanh(), nn.Flatten(), nn.LazyLinear(1)
        ),
        98,
    )
    rows: list[int] = []
    by_row = products.by_kernel_row

    def counted(parameter, columns, outputs):  # type: ignore[no-untyped-def]  # passes on what it is given
        rows.append(len(columns))
        return by_row(parameter, columns, outputs)

    monkeypatch.setattr(layers, "by_kernel_row", counted)
    module, records = build(kind, 1), records_for(kind, 6, 1, np.repeat(np.arange(6 // each), each))
    for clip in (1e-2, 1e6):
        sample = np.arange(6 // each)
        expected = clipped_one_by_one(module, records, sample, clip)
        got = BookKeeping(module, 8).clipped_sum(records, sample, clip)
        assert np.linalg.norm(got - expected) <= 1e-9 * np.linalg.norm(expected)
    assert set(rows) == ({3} if each == 1 and name != "skips rows" else set())


@pytest.mark.parametrize("size", [7, 1 << 15, (1 << 15) + 1, 100_000])
def test_norms_are_those_of_float64(size: int) -> None:
    values = torch.randn(5, size, generator=torch.Generator().manual_seed(size))
    values[2] *= 1e-24  # squares of it vanish in float32
    exact = np.square(values.numpy().astype(np.float64)).sum(1)
    np.testing.assert_allclose(squares_of(values).numpy(), exact, rtol=1e-13)


def _large(units: int, seed: int) -> tuple[Instances, torch.Tensor, torch.Tensor]:
    """Instances of a weight that is summed in float32, its gradients, and factors that clip them to 1."""
    drawn = torch.Generator().manual_seed(seed)
    gradients = torch.rand(units, 20_000, generator=drawn)  # of one sign: roundings do not cancel
    one = Instances(nn.Parameter(torch.zeros(100, 200)), gradients)
    return one, gradients, 1 / one.squares.sqrt()


@pytest.mark.parametrize("units", [1, 8, 100, 256])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_what_a_float32_sum_of_instances_is_off_by_is_within_the_noted_bound(
    units: int, scale: float
) -> None:
    one, gradients, factors = _large(units, units)
    factors = factors * scale
    check = SumCheck()
    got = one.weighted(factors, check)
    off = float((got - factors @ gradients.double()).norm())
    noted = check.largest_error({})
    assert 0 < off <= noted
    if scale >= 1:
        assert noted <= 20 * units * 2.0**-24 * scale
    np.testing.assert_allclose(one.weighted(factors, None), factors @ gradients.double(), rtol=1e-13)


def test_factors_too_small_for_float32_are_noted_as_the_error_they_are() -> None:
    """The attack: a gradient near the largest float32, whose factor rounds by a third of itself."""
    one = Instances(nn.Parameter(torch.zeros(100, 200)), torch.full((1, 20_000), 3e38))
    factors = torch.tensor([2.1e-45], dtype=torch.float64)
    check = SumCheck()
    off = (one.weighted(factors, check) - one.weighted(factors, None)).norm()
    assert 1e-6 < float(off) <= check.largest_error({})


def _wide() -> tuple[nn.Module, Records]:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Unflatten(1, (12, 5, 5)), nn.Conv2d(12, 160, 3, padding=1), nn.Flatten(), nn.Linear(4000, 1)
    )
    features = np.random.default_rng(0).uniform(-1, 1, (40, 300)).astype(np.float32)
    return module.train(), Records(features, np.ones(40, dtype=np.float32))


def test_instances_whose_bound_is_too_wide_are_summed_in_float64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_PRODUCTS", 0)  # nothing in Gram form but layers without positions
    module, records = _wide()
    engine = BookKeeping(module, 64)
    exact = engine._summed(records, np.arange(40), 1.0, None).numpy()
    quick = engine.clipped_sum(records, np.arange(40), 1.0)
    assert 0 < np.linalg.norm(quick - exact) < 1e-4
    monkeypatch.setattr(products, "_HALF_EPS", 1.0)
    wide = engine.clipped_sum(records, np.arange(40), 1.0)
    assert np.linalg.norm(wide - exact) < 1e-9


def test_many_passes_use_up_the_room_for_proven_errors_and_no_more() -> None:
    """Each pass fits by itself. Were passes not counted together, large samples would pass the bound."""
    one, gradients, factors = _large(64, 1)
    bound = 9 * 64 * 2.0**-24
    check = SumCheck(2.5 * bound)
    exact = factors @ gradients.double()
    off = [float((one.weighted(factors, check) - exact).norm()) for _ in range(4)]
    assert min(off[:2]) > 1e-9 > 1e-12 > max(off[2:])
    assert check.largest_error({}) <= 2.5 * bound


@pytest.mark.parametrize("wrong_pass", [0, 1, 2])
def test_a_product_that_is_wrong_in_any_pass_of_a_step_is_found(
    wrong_pass: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: an error of one pass, which later ones are added to. Without the check it would go out."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 1)).train()
    features = np.random.default_rng(0).uniform(-1, 1, (40, 300)).astype(np.float32)
    records = Records(features, np.ones(40, dtype=np.float32))
    engine = BookKeeping(module, 16)
    right = engine.clipped_sum(records, np.arange(40), 1.0)
    product, made = products._product, []

    def wrong(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        result = product(outputs, inputs)
        if result.dtype == torch.float32:
            made.append(1)
            if len(made) == wrong_pass + 1:
                result[0, 3, 7] += 0.01
        return result

    monkeypatch.setattr(products, "_product", wrong)
    assert np.linalg.norm(engine.clipped_sum(records, np.arange(40), 1.0) - right) < 1e-4
    assert len(made) == 3
    made.clear()
    unchecked = engine._summed(records, np.arange(40), 1.0, SumCheck()).numpy()
    assert np.linalg.norm(unchecked - right) > 5e-3


def test_the_log_names_the_engine_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="silo_agent.engines.choice")
    engine_for(nn.Linear(4, 1).train(), 4)
    solid = nn.Sequential(nn.Unflatten(1, (1, 2, 2, 2)), nn.Conv3d(1, 3, 2), nn.Flatten(), nn.Linear(3, 1))
    engine_for(solid.train(), 8)
    chosen = [(vars(line)["engine"], vars(line)["reason"]) for line in caplog.records]
    assert chosen[0] == ("book_keeping", "it knows every layer, and takes one backward pass a step")
    assert chosen[1][0] == "opacus_hooks"
    assert "model.1: book-keeping has no rule for it: Conv3d has no rule" in chosen[1][1]


@pytest.mark.parametrize("layer", [nn.LSTM(2, 3), nn.GRU(2, 3), nn.RNN(2, 3)], ids=["lstm", "gru", "rnn"])
def test_torchs_own_recurrent_layers_are_told_which_ones_are_book_kept(layer: nn.Module) -> None:
    assert "silo_agent.models.recurrent.Recurrent" in (why_not(layer) or "")
