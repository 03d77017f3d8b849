"""Padding claims: a pass has one shape, whoever was drawn, and what fills it up adds nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import _SHAPES, BookKeeping, pass_shape
from tests.unit.silo_agent.engine_models import KINDS, build, clipped_one_by_one, records_for


def test_the_shape_follows_from_the_public_number_that_a_step_draws() -> None:
    assert [pass_shape(expected) for expected in (1, 8, 9, 32, 33, 128, 129, 1e9)] == [
        16, 16, 64, 64, 256, 256, 256, 256,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [1, 8, 64])
def test_padded_sums_are_those_of_gradients_computed_one_by_one(kind: str, shape: int) -> None:
    module, records = build(KINDS[kind], 3), records_for(KINDS[kind], 11, 3)
    expected = clipped_one_by_one(module, records, np.arange(11), 0.7)
    got = BookKeeping(module, shape).clipped_sum(records, np.arange(11), 0.7)
    assert np.linalg.norm(got - expected) <= 1e-9 * np.linalg.norm(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_has_the_same_shape_however_many_are_drawn(kind: str) -> None:
    module, records = build(KINDS[kind], 4), records_for(KINDS[kind], 40, 4)
    engine = BookKeeping(module, 16)
    seen: set[int] = set()
    engine.clipped_sum(records, np.arange(1), 1.0)
    handle = module.register_forward_pre_hook(lambda _, given: seen.add(len(given[0])))
    for drawn in (0, 1, 3, 15, 16, 17, 40):
        engine.clipped_sum(records, np.arange(drawn), 1.0)
    handle.remove()
    assert seen == {16}


@pytest.mark.parametrize("width", [1, 3, 4, 9, 16, 17, 33])
@pytest.mark.parametrize("shape", _SHAPES)
def test_activations_and_gradients_have_the_same_bits_wherever_a_record_stands(
    width: int, shape: int
) -> None:
    """In float32, where the order of additions shows: without MKL_CBWR widths 3, 4 and 9 differ."""
    torch.manual_seed(width)
    module = nn.Sequential(nn.Linear(30, width), nn.Tanh(), nn.Linear(width, 20), nn.GELU(), nn.Linear(20, 1))
    features = torch.rand(shape, 30) * 2 - 1

    def bits(given: torch.Tensor) -> torch.Tensor:
        calls: list[tuple[torch.Tensor, torch.Tensor]] = []
        hooks = [
            layer.register_forward_hook(lambda _, inputs, output: calls.append((inputs[0], output)))
            for layer in module
            if isinstance(layer, nn.Linear)
        ]
        loss = nn.functional.softplus(module(given)).sum()
        for hook in hooks:
            hook.remove()
        backs = torch.autograd.grad(loss, [output for _, output in calls])
        return torch.cat([*(inputs for inputs, _ in calls), *backs], dim=1)

    whole = bits(features)
    for shift in (1, 7, 13):
        assert torch.equal(bits(features.roll(shift, 0)), whole.roll(shift, 0))
    few = torch.zeros(shape, 30)
    few[shape - 2] = features[3]
    assert torch.equal(bits(few)[shape - 2], whole[3])


def test_a_record_that_is_not_finite_changes_nothing_of_the_others() -> None:
    kind = KINDS["mlp"]
    module, records = build(kind, 6), records_for(kind, 6, 6)
    kept = np.array([0, 1, 2, 4, 5])
    engine = BookKeeping(module, 8)
    without = engine.clipped_sum(records, kept, 0.5)
    records.features[3, 0] = np.nan
    assert np.linalg.norm(engine.clipped_sum(records, np.arange(6), 0.5) - without) <= 1e-12


def test_a_model_that_has_diverged_is_refused_whatever_the_records_are() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 1)).train()
    with torch.no_grad():
        module[1].weight.fill_(1e30)
        module[2].weight.fill_(1e30)
    records = Records(np.ones((3, 4), np.float32), np.ones(3, np.float32))
    with pytest.raises(ConfigurationError, match="has diverged: lower the learning rate"):
        BookKeeping(module, 8).clipped_sum(records, np.arange(3), 1.0)


def test_units_of_several_records_keep_their_shape_too() -> None:
    kind = KINDS["mlp"]
    module, records = build(kind, 7), records_for(kind, 9, 7)
    owned = Records(records.features, records.labels, units=np.array([0, 0, 1, 2, 2, 3, 3, 4, 4]))
    engine = BookKeeping(module, 8)
    seen: list[int] = []
    module.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    sums = [engine.clipped_sum(owned, np.array(units), 0.3) for units in ([0], [0, 2], [0, 2, 3, 4])]
    assert set(seen) == {2, 8}  # one unit to learn what it takes, then whole passes
    assert seen.count(2) == 1
    each = [engine.clipped_sum(owned, np.array([unit]), 0.3) for unit in (0, 2, 3, 4)]
    assert np.linalg.norm(sums[2] - np.sum(each, axis=0)) <= 1e-12
