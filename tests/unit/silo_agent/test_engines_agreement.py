"""Engine claims: all of them compute the same clipped sum, which is the one plain autograd gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from silo_agent.data.records import Records
from silo_agent.engines import book_keeping, opacus_hooks
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.choice import engine_for
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.opacus_ghost import OpacusGhost
from silo_agent.engines.opacus_hooks import OpacusHooks
from tests.unit.silo_agent.engine_models import KINDS, build, clipped_one_by_one, records_for

ENGINES: dict[str, Callable[[nn.Module], StepEngine]] = {
    "book_keeping": BookKeeping,
    "opacus_hooks": OpacusHooks,
    "opacus_ghost": OpacusGhost,
}
PAIRS = [(engine, kind) for engine in ENGINES for kind in KINDS]
# Opacus' ghost norms of a linear layer know two and three dimensions.
PAIRS.remove(("opacus_ghost", "positions_of_positions"))
# Opacus gives a padding row of an embedding the gradient that it must not have.
PAIRS.remove(("opacus_hooks", "padded_embedding"))
PAIRS.remove(("opacus_ghost", "padded_embedding"))


def _apart(got: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def _sum(engine: str, kind: str, seed: int, clip: float, count: int = 7) -> NDArray[np.float64]:
    records = records_for(KINDS[kind], count, seed)
    return ENGINES[engine](build(KINDS[kind], seed)).clipped_sum(records, np.arange(count), clip)


@pytest.mark.parametrize(("engine", "kind"), PAIRS)
@pytest.mark.parametrize("clip", [1e-3, 0.7, 1e6], ids=["all clipped", "some", "none"])
def test_the_clipped_sum_is_that_of_gradients_computed_one_by_one(
    engine: str, kind: str, clip: float
) -> None:
    module, records = build(KINDS[kind], 5), records_for(KINDS[kind], 7, 5)
    expected = clipped_one_by_one(module, records, np.arange(7), clip)
    assert _apart(_sum(engine, kind, 5, clip), expected) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "padded_embedding"])
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    clip=st.floats(1e-4, 1e3),
    count=st.integers(1, 12),
)
def test_book_keeping_agrees_with_opacus(kind: str, seed: int, clip: float, count: int) -> None:
    ours = _sum("book_keeping", kind, seed, clip, count)
    assert _apart(ours, _sum("opacus_hooks", kind, seed, clip, count)) <= 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_only_sampled_records_are_in_the_sum_and_none_of_an_empty_sample(engine: str) -> None:
    kind = KINDS["mlp"]
    module, records = build(kind, 1), records_for(kind, 9, 1)
    made = ENGINES[engine](module)
    sample = np.array([0, 4, 7])
    expected = clipped_one_by_one(module, records, sample, 0.5)
    assert _apart(made.clipped_sum(records, sample, 0.5), expected) <= 1e-9
    empty = made.clipped_sum(records, np.array([], dtype=np.intp), 0.5)
    np.testing.assert_array_equal(empty, np.zeros(len(expected)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_record_without_a_finite_gradient_adds_zero(engine: str, poison: float) -> None:
    kind = KINDS["mlp"]
    module, records = build(kind, 2), records_for(kind, 6, 2)
    records.features[3, 1] = poison
    kept = np.array([0, 1, 2, 4, 5])
    expected = clipped_one_by_one(module, records, kept, 0.5)
    made = ENGINES[engine](module)
    assert _apart(made.clipped_sum(records, np.arange(6), 0.5), expected) <= 1e-9
    np.testing.assert_array_equal(made.clipped_sum(records, np.array([3]), 0.5), np.zeros(len(expected)))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_leaves_nothing_behind_for_the_next(engine: str) -> None:
    """Early ends included: an exception in a pass must not leave half of it in the next sum."""
    kind = KINDS["cnn2d"]
    module, records = build(kind, 3), records_for(kind, 8, 3)
    made = ENGINES[engine](module)
    first = made.clipped_sum(records, np.arange(8), 0.5)
    wrong = Records(records.features, records.labels, classes=3)
    with pytest.raises(Exception, match="expected 3 outputs"):
        made.clipped_sum(wrong, np.arange(8), 0.5)
    np.testing.assert_allclose(made.clipped_sum(records, np.arange(8), 0.5), first, rtol=1e-12)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_weights_that_move_between_calls_are_seen() -> None:
    kind = KINDS["mlp"]
    records = records_for(kind, 5, 4)
    for engine in ENGINES.values():
        module = build(kind, 4)
        made = engine(module)
        made.clipped_sum(records, np.arange(5), 0.5)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(-0.5)
        expected = clipped_one_by_one(module, records, np.arange(5), 0.5)
        assert _apart(made.clipped_sum(records, np.arange(5), 0.5), expected) <= 1e-9


@pytest.mark.parametrize("engine", ["book_keeping", "opacus_hooks"])
def test_a_frozen_parameter_has_zeros_in_its_place(engine: str) -> None:
    kind = KINDS["mlp"]
    module, records = build(kind, 4), records_for(kind, 5, 4)
    first = next(module.parameters())
    whole = clipped_one_by_one(module, records, np.arange(5), 1e6)
    first.requires_grad_(False)
    frozen = ENGINES[engine](module).clipped_sum(records, np.arange(5), 1e6)
    np.testing.assert_array_equal(frozen[: first.numel()], 0.0)
    assert _apart(frozen[first.numel() :], whole[first.numel() :]) <= 1e-9


@pytest.mark.parametrize(
    ("engine", "bound"), [("book_keeping", "_RECORDS"), ("opacus_hooks", "_GRADIENTS_IN_MEMORY")]
)
def test_a_sample_clipped_in_several_goes_gives_the_same_sum(
    engine: str, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _sum(engine, "cnn2d", 6, 0.5, 11)
    monkeypatch.setattr({"book_keeping": book_keeping, "opacus_hooks": opacus_hooks}[engine], bound, 3)
    assert _apart(_sum(engine, "cnn2d", 6, 0.5, 11), whole) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_book_keeping_is_chosen_for_every_kind_it_knows(kind: str) -> None:
    engine = engine_for(build(KINDS[kind], 7), KINDS[kind].inputs)
    assert engine.name == "book_keeping"


@pytest.mark.parametrize("positions", [1, 2, 8])
def test_in_float32_no_unit_adds_more_than_c(positions: int) -> None:
    """A Gram form comes out short where terms cancel: positions are nearly each other's negatives."""
    random = torch.Generator().manual_seed(0)
    module = nn.Sequential(
        nn.Unflatten(1, (positions, 300)), nn.Linear(300, 200), nn.Flatten(), nn.Linear(200 * positions, 1)
    )
    engine = BookKeeping(module)
    rows = torch.randn(20, positions, 300, generator=random)
    rows[:, positions // 2 :] = -rows[:, : positions - positions // 2] * (1 + 1e-4)
    records = Records(rows.flatten(1).numpy() * 1e3, np.ones(20, dtype=np.float32))
    for row in range(20):
        alone = engine.clipped_sum(records, np.array([row]), 1.0)
        assert np.linalg.norm(alone) <= 1.0


@pytest.mark.parametrize("aligned", [True, False])
def test_rounding_of_float32_sums_is_far_below_c(aligned: bool) -> None:
    """What docs/privacy.md says of them: a record moves the sum by C, its roundings by 10⁻⁴ C."""
    module = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 1))
    engine = BookKeeping(module)
    features = np.random.default_rng(0).uniform(-1, 1, (256, 300)).astype(np.float32)
    if aligned:
        features[:] = features[0]
    records = Records(features, np.ones(256, dtype=np.float32))
    moved = engine.clipped_sum(records, np.arange(256), 1.0) - engine.clipped_sum(
        records, np.arange(255), 1.0
    )
    alone = engine.clipped_sum(records, np.array([255]), 1.0)
    assert np.linalg.norm(moved - alone) <= 1e-3
    assert np.linalg.norm(moved) <= 1.0 + 1e-5
