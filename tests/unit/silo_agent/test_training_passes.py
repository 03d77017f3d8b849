"""A step in passes of a few records is the same sum, in each engine, and what Opacus' splitting has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ADAPTERS, build_model
from silo_agent.models.layouts import initial_vector, model_terms

MODEL = model_terms("mlp", 3, (4,))
CLIP, COUNT, MOST = 0.1, 21, 4
ENGINES: dict[str, Callable[[nn.Module, int | None], StepEngine]] = {
    "book_keeping": BookKeeping,
    "opacus_hooks": OpacusHooks,
}
engines = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)


def module() -> nn.Module:
    return build_model(ADAPTERS["mlp"], MODEL, initial_vector(MODEL, 3)).train()


def records(units: NDArray[np.int64] | None = None) -> Records:
    random = np.random.default_rng(4)
    features = random.uniform(-1, 1, (COUNT, 3)).astype(np.float32)
    return Records(features, (features[:, 0] > 0).astype(np.float32), units=units)


def seen_by(model: nn.Module) -> list[int]:
    """How many records each pass through it had."""
    passes: list[int] = []
    model.register_forward_pre_hook(lambda _module, given: passes.append(len(given[0])))
    return passes


@engines
@pytest.mark.parametrize("units", [None, np.repeat(np.arange(7), 3)], ids=["records", "patients"])
def test_passes_of_a_few_records_add_up_to_the_step(
    make: Callable[[nn.Module, int | None], StepEngine], units: NDArray[np.int64] | None
) -> None:
    held = records(units)
    sample = np.arange(held.unit_count)
    whole = make(module(), None).clipped_sum(held, sample, CLIP)
    model = module()
    passes = seen_by(model)
    split = make(model, MOST).clipped_sum(held, sample, CLIP)
    assert max(passes) <= MOST
    assert len(passes) >= COUNT // MOST
    np.testing.assert_allclose(split, whole, rtol=1e-6, atol=1e-8)
    assert np.linalg.norm(whole) > CLIP, "clipping was at work"


@engines
def test_a_step_is_what_opacus_batch_memory_manager_makes_of_it(
    make: Callable[[nn.Module, int | None], StepEngine],
) -> None:
    held = records()
    ours = make(module(), MOST).clipped_sum(held, np.arange(COUNT), CLIP)
    model = module()
    before = torch.cat([one.detach().flatten() for one in model.parameters()])
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=COUNT,
    )
    wrapped = GradSampleModule(model)
    data = TensorDataset(torch.from_numpy(held.features), torch.from_numpy(held.labels))
    loader: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(data, batch_size=COUNT)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=MOST, optimizer=optimizer) as split:
        physical = 0
        for features, labels in split:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(
                wrapped(features.requires_grad_()).squeeze(-1), labels
            )
            loss.backward()
            optimizer.step()
            physical += 1
    after = torch.cat([one.detach().flatten() for one in model.parameters()])
    assert physical == -(-COUNT // MOST)
    np.testing.assert_allclose(((before - after) * COUNT).numpy(), ours, rtol=2e-4, atol=2e-6)


def test_the_workbench_keeps_to_the_settings_bound() -> None:
    held = records()
    bench = Workbench(pass_records=MOST)
    engine = bench.engine(ADAPTERS["mlp"], MODEL, initial_vector(MODEL, 3), expected=COUNT)
    passes = seen_by(engine.module)
    engine.clipped_sum(held, np.arange(COUNT), CLIP)
    assert max(passes) <= MOST
