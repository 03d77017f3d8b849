"""Device and precision claims: what is asked for is what computes, and bfloat16 clips what it sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.choice import engine_for
from silo_agent.engines.engine import private_sum
from silo_agent.engines.place import HERE, Place, place_for
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ADAPTERS, export_vector
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.settings import read_settings
from tests.unit.silo_agent.engine_models import KINDS, Kind, records_for

NO_GPU = "no GPU here: what is computed on one is tested where there is one"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
SINGLE = {name: kind for name, kind in KINDS.items() if name not in ("logistic", "softmax")}


def _module(kind: Kind, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    module = kind.build().train()
    module(torch.zeros(2, kind.inputs))
    return module


def test_a_device_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for asked in ("cuda", "cuda:0", "cuda:7"):
        with pytest.raises(ConfigurationError, match=rf"sees here \(cpu\), got {asked};"):
            place_for(asked)


def test_auto_takes_a_gpu_where_there_is_one_and_else_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert place_for("auto") == place_for("cpu") == HERE
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("silo_agent.engines.place._in_one_order", lambda: None)
    assert str(place_for("auto", "bf16")) == "cuda:0, bf16"
    assert str(place_for("cuda:1")) == "cuda:1, float32"
    with pytest.raises(ConfigurationError, match=r"cpu, cuda:0, cuda:1\), got cuda:2"):
        place_for("cuda:2")


@pytest.mark.parametrize("kind", SINGLE)
def test_in_bfloat16_no_unit_adds_more_than_c(kind: str) -> None:
    module, records = _module(SINGLE[kind]), records_for(SINGLE[kind], 12, 1)
    engine = BookKeeping(module, 16)
    engine.precision = "bf16"
    for clip in (1e-3, 1e-1):
        for row in range(4):
            alone = engine.clipped_sum(records, np.array([row]), clip)
            assert np.linalg.norm(alone) <= clip


@pytest.mark.parametrize("kind", SINGLE)
def test_in_bfloat16_sums_are_those_of_float32_to_its_few_bits(kind: str) -> None:
    module, records = _module(SINGLE[kind]), records_for(SINGLE[kind], 40, 2)
    engine = BookKeeping(module, 64)
    exact = engine.clipped_sum(records, np.arange(40), 1e-2)
    engine.precision = "bf16"
    coarse = engine.clipped_sum(records, np.arange(40), 1e-2)
    assert 0 < np.linalg.norm(coarse - exact) < 0.1 * np.linalg.norm(exact)


def test_in_bfloat16_a_record_more_moves_a_private_sum_by_at_most_the_clip() -> None:
    """The attack: were norms taken of anything else than what is summed, eight bits would show here."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 1)).train()
    features = np.random.default_rng(0).uniform(-1, 1, (257, 300)).astype(np.float32)
    records = Records(features, np.ones(257, dtype=np.float32))
    engine = BookKeeping(module)
    engine.precision = "bf16"
    for row in range(5):
        kept = np.delete(np.arange(257), row)
        whole = private_sum(engine, records, np.arange(257), 1e-2)
        moved = whole - private_sum(engine, records, kept, 1e-2)
        assert 0.99e-2 < np.linalg.norm(moved) <= 1e-2


@pytest.mark.parametrize("width", [3, 9, 16, 33])
def test_in_bfloat16_gradients_have_the_same_bits_wherever_a_record_stands(width: int) -> None:
    torch.manual_seed(width)
    module = nn.Sequential(nn.Linear(30, width), nn.Tanh(), nn.Linear(width, 20), nn.GELU(), nn.Linear(20, 1))
    features = np.random.default_rng(0).uniform(-1, 1, (64, 30)).astype(np.float32)
    engine = BookKeeping(module.train(), 64)
    engine.precision = "bf16"
    alone = []
    for place in (0, 17, 63):
        turned = Records(np.roll(features, place, 0), np.ones(64, dtype=np.float32))
        alone.append(engine.clipped_sum(turned, np.array([(5 + place) % 64]), 1e6))
        gradients = engine._unit_gradients(turned, np.arange(64)[:, None])
        alone[-1] = np.concatenate([alone[-1], [float(one.squares[(5 + place) % 64]) for one in gradients]])
    np.testing.assert_array_equal(alone[0], alone[1])
    np.testing.assert_array_equal(alone[0], alone[2])


def test_bf16_is_refused_where_only_opacus_knows_the_model() -> None:
    def solid() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 2, 2, 2)), nn.Conv3d(1, 3, 2), nn.Flatten(), nn.Linear(3, 1)
        ).train()

    assert engine_for(solid(), 8).name == "opacus_hooks"
    with pytest.raises(ConfigurationError, match="expected float32 for this model, which is trained by opac"):
        engine_for(solid(), 8, precision="bf16")


def test_a_process_whose_float32_products_are_coarse_takes_no_step() -> None:
    kind = KINDS["mlp"]
    engine, records = BookKeeping(_module(kind), 16), records_for(kind, 3, 0)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ConfigurationError, match="expected the precision highest, got medium"):
            engine.clipped_sum(records, np.arange(3), 1.0)
    finally:
        torch.set_float32_matmul_precision("highest")


class _OnTheDevice(TorchFunctionMode):
    """Refuses tensors made on torch's default device, which on a GPU is not the module's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's own signature
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("zeros", "ones", "empty", "full", "arange", "rand", "randn", "tensor"):
            assert "device" in kwargs, f"torch.{name} without a device"
        return func(*args, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_makes_every_tensor_on_its_modules_device(kind: str) -> None:
    """What a GPU would refuse is seen without one."""
    module, records = _module(KINDS[kind]), records_for(KINDS[kind], 7, 3)
    engine = BookKeeping(module, 16)
    with _OnTheDevice():
        engine.clipped_sum(records, np.arange(7), 0.5)
        engine._summed(records, np.arange(7), 0.5, None)


def test_a_workbench_computes_in_the_precision_of_its_place() -> None:
    terms = model_terms("mlp", 6, (5,))
    vector = initial_vector(terms, 0)
    workbench = Workbench(Place(precision="bf16"))
    engine = workbench.engine(ADAPTERS["mlp"], terms, vector, 10)
    assert workbench.engine_name == "book_keeping on cpu, bf16"
    assert isinstance(engine, BookKeeping)
    assert engine.precision == "bf16"
    np.testing.assert_array_equal(export_vector(terms, engine.module), vector)


@pytest.mark.parametrize(
    ("line", "message"),
    [("device: gpu", "device"), ("device: cuda:", "device"), ("precision: fp16", "precision")],
)
def test_settings_name_devices_and_precisions_that_exist(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "silo.yaml"
    path.write_text(
        "aggregator_url: https://a.example\nthreat_model: strict\n"
        f"datasets: {{heart: {{path: t.csv, purpose: study}}}}\n{line}\n"
    )
    with pytest.raises(ConfigurationError, match=message):
        read_settings(path)


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_sums_are_those_of_the_processor(kind: str) -> None:
    module, records = _module(KINDS[kind]), records_for(KINDS[kind], 40, 4)
    here = BookKeeping(module, 64).clipped_sum(records, np.arange(40), 1e-2)
    there = BookKeeping(_module(KINDS[kind]).to(place_for("cuda").device), 64)
    for precision, apart in (("float32", 1e-5), ("bf16", 0.1)):
        there.precision = precision  # type: ignore[assignment]  # one of the two
        got = there.clipped_sum(records, np.arange(40), 1e-2)
        assert np.linalg.norm(got - here) <= apart * np.linalg.norm(here)
