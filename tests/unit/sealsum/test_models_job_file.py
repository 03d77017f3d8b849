"""Job files with first weights from a file, and with labels beside classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from privacy.errors import ConfigurationError
from privacy.update import model_bytes, model_digest
from sealsum.job_file import JobFile, read_job_file
from silo_agent.models.files import model_file, read_model
from silo_agent.models.layouts import initial_vector
from tests.federation import Federation
from tests.unit.sealsum.test_sealsum_job_file import TEXT

MODEL = "{adapter: mlp, hidden: [4], seed: 1}"
START = TEXT.replace(MODEL, "{adapter: mlp, hidden: [4]}\ninitial_model: first.safetensors")


def read(directory: Path, text: str) -> JobFile:
    path = directory / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return read_job_file(path)


def _layout(directory: Path) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {spec.name: np.ones(spec.shape, dtype=np.float32) for spec in read(directory, TEXT).terms().layout}


def test_a_job_starts_from_the_file_beside_it_and_names_no_path(tmp_path: Path) -> None:
    plain = read(tmp_path, TEXT)
    vector = initial_vector(plain.terms(), 9)
    (tmp_path / "first.safetensors").write_bytes(model_file(plain.terms(), vector, {}))
    asked = read(tmp_path, START)
    assert np.array_equal(asked.first_model(), vector)
    spec = asked.spec(Federation().charter, asked.first_model())
    assert spec.initial_model == model_digest(spec.model, [model_bytes(vector)])
    assert "safetensors" not in spec.model_dump_json()


def test_a_seed_beside_a_file_is_refused(tmp_path: Path) -> None:
    asked = read(tmp_path, f"{TEXT}initial_model: first.safetensors\n")
    with pytest.raises(ConfigurationError, match=r"model\.seed: expected none beside initial_model"):
        asked.first_model()


def test_each_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    tensors = _layout(tmp_path)
    names = list(tensors)
    first = tensors.pop(names[0])
    tensors[names[1]] = np.ones(3, dtype=np.float32)
    tensors[names[2]] = tensors[names[2]].astype(np.float64)
    tensors["body.bn1.running_mean"] = np.ones(2, dtype=np.float32)
    path = tmp_path / "first.safetensors"
    path.write_bytes(save(tensors))
    with pytest.raises(ConfigurationError) as refused:
        read_model(path, read(tmp_path, TEXT).terms())
    said = str(refused.value)
    assert f"{names[0]}: expected {list(first.shape)}, got none of that name" in said
    assert f"{names[1]}: expected [4], got [3]" in said
    assert f"{names[2]}: expected float32, got float64; convert it" in said
    assert "body.bn1.running_mean: the layout has no such tensor; leave it out" in said


def test_the_tensor_that_is_not_finite_is_named(tmp_path: Path) -> None:
    tensors = _layout(tmp_path)
    tensors["layer2.bias"][:] = np.inf
    path = tmp_path / "first.safetensors"
    path.write_bytes(save(tensors))
    with pytest.raises(ConfigurationError, match=r"got others in layer2\.bias"):
        read_model(path, read(tmp_path, TEXT).terms())


def test_a_built_in_model_has_no_layout_written_out(tmp_path: Path) -> None:
    text = TEXT.replace(MODEL, "{adapter: mlp, layout: [{name: w, shape: [6]}]}")
    with pytest.raises(ConfigurationError, match="expected none with mlp, which is built in; say hidden"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("label", "adapter", "parameters"),
    [
        ("{column: stay, low: 0, high: 60}", "linear", 7),
        ("{time: days, event: dead, horizon: 365, loss: exponential}", "linear", 7),
        ("{column: kind, categories: [a, b, c]}", "logistic", 21),
    ],
)
def test_a_model_has_as_many_outputs_as_its_label_asks_for(
    tmp_path: Path, label: str, adapter: str, parameters: int
) -> None:
    text = TEXT.replace("{column: num, threshold: 0}", label).replace(MODEL, f"{{adapter: {adapter}}}")
    asked = read(tmp_path, text)
    assert asked.terms().parameters == parameters
    assert asked.spec(Federation().charter, asked.first_model()).data.label == asked.data.label


def test_a_cox_model_is_trained_without_dp_and_refused_with_it(tmp_path: Path) -> None:
    text = TEXT.replace("{column: num, threshold: 0}", "{time: days, event: dead, horizon: 365}")
    text = text.replace(MODEL, "{adapter: cox}")
    charter = Federation().charter
    asked = read(tmp_path, text)
    with pytest.raises(ConfigurationError, match="under DP write loss: exponential"):
        asked.spec(charter, asked.first_model())
    dp = next(line for line in text.splitlines() if line.startswith("dp:"))
    asked = read(tmp_path, text.replace(dp, "dp: none").replace("dp_fedavg", "fedavg"))
    assert asked.spec(charter, asked.first_model()).model.parameters == 6


def test_a_job_asks_for_standardised_weights_by_one_word_and_another_is_spelt_as_before(
    tmp_path: Path,
) -> None:
    columns = "\n".join(
        f"    - {{kind: numeric, column: p{place}, low: 0, high: 1, impute: 0}}" for place in range(64)
    )
    start, end = TEXT.index("features:"), TEXT.index("  label:")
    images = f"{TEXT[:start]}features:\n{columns}\n{TEXT[end:]}"
    asked = images.replace(MODEL, "{adapter: resnet, hidden: [4], standardise_weights: true}")
    assert read(tmp_path, asked).terms().standardise_weights
    plain = read(tmp_path, images.replace(MODEL, "{adapter: resnet, hidden: [4]}")).terms()
    assert plain.layout == read(tmp_path, asked).terms().layout
    assert "standardise_weights" not in plain.model_dump(mode="json")
    with pytest.raises(ConfigurationError, match="expected with cnn, resnet, unet only, got mlp"):
        read(tmp_path, TEXT.replace("seed: 1}", "standardise_weights: true}")).terms()
