"""Models that silo.yaml lists by a dotted name: what is built, converted, refused, and how it is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from click.testing import CliRunner
from safetensors.numpy import load_file
from torch import nn

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms
from silo_agent.data.records import Records
from silo_agent.engines.choice import engine_for
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.model_command import describe_model
from silo_agent.models.adapters import build_model, find_adapter, predict_scores
from silo_agent.models.module_adapter import made, tensors_of
from silo_agent.models.own import OwnModule
from tests.unit.silo_agent.engine_models import clipped_one_by_one

HERE = __name__
SIDE = 6


class Block(nn.Module):
    """As torchvision has it: BatchNorm, ReLU in place and used twice, the residual added in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(given)))))
        out += given
        done: torch.Tensor = self.relu(out)
        return done


class Network(nn.Module):
    """A small one of such blocks."""

    def __init__(self, num_classes: int = 1000, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = Block(width)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.layer1(torch.relu(self.bn1(self.conv1(images))))
        scores: torch.Tensor = self.fc(maps.mean((2, 3)))
        return scores


class Positions(nn.Module):
    """Draws a buffer when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.place: torch.Tensor
        self.register_buffer("place", torch.randn(4))
        self.layer = nn.Linear(4, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(given + self.place)
        return scores


class Twice(nn.Module):
    """Calls one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.fc = nn.Linear(2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.fc(self.conv(torch.tanh(self.conv(images))).mean((2, 3)))
        return scores


class Aliased(nn.Module):
    """Changes a tensor, and uses it under the name it had before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(given)
        scores.mul_(2)
        return scores


def small(num_classes: int = 1) -> nn.Module:
    """A factory, as timm and torchvision have them."""
    return Network(num_classes)


NO_MODULE = {"a": 1}.copy


def own(**changes: Any) -> OwnModule:
    fields: dict[str, Any] = {
        "module": f"{HERE}:small",
        "arguments": {"num_classes": 1},
        "image": (3, SIDE, SIDE),
        "convert_batchnorm": True,
        "out_of_place": True,
    }
    return OwnModule.model_validate(fields | changes)


def terms_of(one: OwnModule, name: str = "small") -> ModelTerms:
    return ModelTerms(adapter=name, inputs=3 * SIDE**2, layout=tensors_of(made(name, one)))


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_listed_module_keeps_its_names_behind_body_and_reads_records_as_images() -> None:
    terms = terms_of(own())
    assert [one.name for one in terms.layout][:2] == ["body.conv1.weight", "body.bn1.weight"]
    adapter = find_adapter("small", {"small": own()})
    vector = np.random.default_rng(0).normal(size=terms.parameters).astype(np.float32)
    records = np.random.default_rng(1).uniform(-1, 1, (2, terms.inputs)).astype(np.float32)
    module = made("small", own(image=(), out_of_place=False)).body
    with torch.no_grad():
        start = 0
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(vector[start : start + parameter.numel()]).view(parameter.shape))
            start += parameter.numel()
        expected = module(torch.from_numpy(records).view(2, 3, SIDE, SIDE)).squeeze(-1).numpy()
    assert np.allclose(predict_scores(adapter, terms, vector, records), expected, atol=1e-5)


def test_batch_norm_becomes_group_norm_only_if_the_owner_asks() -> None:
    kinds = [type(layer) for layer in made("small", own()).modules()]
    assert nn.GroupNorm in kinds
    assert nn.BatchNorm2d not in kinds
    plain = made("small", own(convert_batchnorm=False))
    assert nn.BatchNorm2d in [type(layer) for layer in plain.modules()]
    assert tensors_of(plain) == tensors_of(made("small", own()))


def _engine_of(one: OwnModule) -> Any:
    terms = terms_of(one)
    adapter = find_adapter("small", {"small": one})
    vector = np.random.default_rng(0).normal(scale=0.3, size=terms.parameters).astype(np.float32)
    module = build_model(adapter, terms, vector).double().train()
    return engine_for(module, terms.inputs)


def test_what_it_was_made_with_is_refused_under_dp_with_the_line_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"BatchNorm2d mixes .*convert_batchnorm: true"):
        _engine_of(own(convert_batchnorm=False))
    with pytest.raises(ConfigurationError, match=r"ReLU changes its input in place.*out_of_place: true"):
        _engine_of(own(out_of_place=False))


def _records(inputs: int) -> Records:
    drawn = np.random.default_rng(3)
    features = drawn.uniform(-1, 1, (4, inputs)).astype(np.float32)
    return Records(features, np.array([0, 1, 1, 0], dtype=np.float32))


def test_a_residual_that_is_added_in_place_is_trained_record_by_record() -> None:
    """``out += given`` hides what the layer before gave: out of place, engines see it."""
    engine = _engine_of(own())
    assert engine.name == "book_keeping"
    records = _records(3 * SIDE**2)
    got = engine.clipped_sum(records, np.arange(4), 0.05)
    expected = clipped_one_by_one(engine.module, records, np.arange(4), 0.05)
    assert np.linalg.norm(got - expected) <= 1e-7 * 0.05
    hooks = OpacusHooks(engine.module).clipped_sum(records, np.arange(4), 0.05)
    assert np.linalg.norm(got - hooks) <= 1e-7 * 0.05


def test_what_book_keeping_does_not_know_goes_to_opacus() -> None:
    """One convolution called twice."""
    listed = OwnModule(module=f"{HERE}:Twice", image=(2, SIDE, SIDE))
    layout = tensors_of(made("twice", listed))
    terms = ModelTerms(adapter="twice", inputs=2 * SIDE**2, layout=layout)
    vector = np.random.default_rng(0).normal(scale=0.3, size=terms.parameters).astype(np.float32)
    module = build_model(find_adapter("twice", {"twice": listed}), terms, vector).double().train()
    engine = engine_for(module, terms.inputs)
    assert engine.name == "opacus_hooks"
    records = _records(terms.inputs)
    got = engine.clipped_sum(records, np.arange(4), 0.05)
    expected = clipped_one_by_one(module, records, np.arange(4), 0.05)
    assert np.linalg.norm(got - expected) <= 1e-7 * 0.05


def test_a_module_that_means_to_change_a_tensor_under_another_name_is_refused() -> None:
    listed = OwnModule(module=f"{HERE}:Aliased", out_of_place=True)
    terms = ModelTerms(adapter="aliased", inputs=4, layout=tensors_of(made("aliased", listed)))
    with pytest.raises(ConfigurationError, match="out_of_place: expected the same outputs as in place"):
        find_adapter("aliased", {"aliased": listed}).layout(terms)


def test_a_job_that_describes_other_tensors_is_refused() -> None:
    terms = terms_of(own(arguments={"num_classes": 2}))
    adapter = find_adapter("small", {"small": own()})
    with pytest.raises(PolicyRefusal) as refused:
        build_model(adapter, terms, np.zeros(terms.parameters, dtype=np.float32))
    assert refused.value.findings[0].rule == "model.layout"


def test_a_module_that_no_job_may_name_is_not_loaded() -> None:
    with pytest.raises(PolicyRefusal, match="takes no code from a job"):
        find_adapter("os:system", {"small": own()})


def test_buffers_are_the_same_at_every_silo_and_nobody_elses_draws_move() -> None:
    listed = OwnModule(module=f"{HERE}:Positions")
    torch.manual_seed(7)
    first = made("p", listed).get_buffer("body.place")
    drawn = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(1))
    assert torch.equal(made("p", listed).get_buffer("body.place"), first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"module": "no_such_package:Net"}, "no_such_package:Net does not load \\(ModuleNotFoundError\\)"),
        ({"module": f"{HERE}:Missing"}, "Missing does not load \\(AttributeError\\)"),
        ({"arguments": {"depth": 3}}, "does not build: .*depth"),
        ({"module": f"{HERE}:NO_MODULE", "arguments": {}}, "to return a torch module"),
    ],
)
def test_what_does_not_build_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"model_adapters.small: .*{message}"):
        made("small", own(**changes))


def test_records_of_another_size_and_hidden_sizes_are_refused() -> None:
    adapter = find_adapter("small", {"small": own()})
    terms = terms_of(own())
    with pytest.raises(ConfigurationError, match=r"image: expected 5 numbers .*, got 3 × 6 × 6"):
        adapter.layout(terms.model_copy(update={"inputs": 5}))
    with pytest.raises(ConfigurationError, match="whose sizes its silo says"):
        adapter.layout(terms.model_copy(update={"hidden": (4,)}))


def test_a_plain_module_where_an_adapter_is_listed_is_told_how_to_list_it() -> None:
    with pytest.raises(ConfigurationError, match=r"list a plain torch module as \{module: "):
        find_adapter("p", {"p": f"{HERE}:Positions"})


# --- what a researcher is told of it ---


def _config(tmp_path: Path) -> Path:
    settings = {
        "state_dir": "state",
        "aggregator_url": "https://aggregator.example",
        "threat_model": "demo-hospitals",
        "datasets": {"cardio": {"path": "cardio.csv", "purpose": "research"}},
        "model_adapters": {"small": own().model_dump(mode="json"), "other": "package.module:Class"},
    }
    path = tmp_path / "silo.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def test_its_terms_and_first_weights_are_written_for_a_job_file(tmp_path: Path) -> None:
    out = tmp_path / "first.safetensors"
    asked = ["small", "--config", str(_config(tmp_path)), "--out", str(out)]
    told = CliRunner().invoke(describe_model, [*asked, "--json"], catch_exceptions=False)
    model = json.loads(told.stdout)["model"]
    terms = terms_of(own())
    assert model["adapter"] == "small"
    layout = [(one["name"], tuple(one["shape"])) for one in model["layout"]]
    assert layout == [(one.name, one.shape) for one in terms.layout]
    assert {name: tensor.shape for name, tensor in load_file(out).items()} == dict(layout)
    as_yaml = CliRunner().invoke(describe_model, asked[:-2], catch_exceptions=False).stdout
    assert yaml.safe_load(as_yaml)["model"] == model


def test_a_model_that_is_not_listed_with_a_module_is_told_which_are(tmp_path: Path) -> None:
    told = CliRunner().invoke(describe_model, ["other", "--config", str(_config(tmp_path))])
    assert "other: expected a model that" in str(told.exception)
    assert "it lists small" in str(told.exception)
