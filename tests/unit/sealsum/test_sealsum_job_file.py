"""job.yaml says everything in public terms; each fault is named with its field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privacy.errors import ConfigurationError
from privacy.update import model_bytes, model_digest
from sealsum.job_file import JobFile, read_job_file
from silo_agent.models.files import model_file, read_model
from tests.federation import Federation

TEXT = """
job: heart-risk
purpose: predict heart disease
dataset: cardio
data:
  features:
    - {kind: numeric, column: age, low: 20, high: 90, impute: 55}
    - {kind: categorical, column: cp, categories: [1, 2, 3, 4], indicator: true}
  label: {column: num, threshold: 0}
  patient_id: patient
model: {adapter: mlp, hidden: [4], seed: 1}
training: {algorithm: dp_fedavg, local_steps: 5, learning_rate: 0.5, server_learning_rate: 1.0}
dp: {unit: patient, sample_rate: 0.2, noise_multiplier: 2.0, clip_l2: 1.0, normaliser: 40, delta: 1e-5}
rounds: 20
min_silos: 3
"""


def read(directory: Path, text: str) -> JobFile:
    path = directory / "job.yaml"
    path.write_text(text)
    return read_job_file(path)


def test_a_job_file_becomes_the_job_that_is_signed(tmp_path: Path) -> None:
    charter = Federation().charter
    asked = read(tmp_path, TEXT)
    initial = asked.first_model()
    spec = asked.spec(charter, initial)
    assert (spec.federation, spec.charter) == (charter.federation, charter.digest)
    assert spec.model.inputs == asked.data.width == 6
    assert spec.initial_model == model_digest(spec.model, [model_bytes(initial)])
    assert spec.dp is not None
    assert spec.dp.delta == 1e-5


def test_the_seed_fixes_the_first_weights(tmp_path: Path) -> None:
    first, again = read(tmp_path, TEXT).first_model(), read(tmp_path, TEXT).first_model()
    other = read(tmp_path, TEXT.replace("seed: 1", "seed: 2")).first_model()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_misspelt_field_is_named_before_what_its_absence_causes(tmp_path: Path) -> None:
    text = TEXT.replace("rounds: 20", "ronds: 20").replace("noise_multiplier", "target_epsilon")
    with pytest.raises(ConfigurationError, match=r"(?m)^  ronds: no such field, expected job, .*, rounds, "):
        read(tmp_path, text)


def test_an_unknown_kind_of_feature_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kind: expected one of 'numeric', .*, got 'numerc'"):
        read(tmp_path, TEXT.replace("kind: numeric", "kind: numerc"))


def test_every_fault_is_reported_with_its_field(tmp_path: Path) -> None:
    text = (
        TEXT.replace("rounds: 20", "rounds: none")
        .replace("job: heart-risk\n", "")
        .replace("sample_rate: 0.2", "sample_rate: 1.5")
    )
    with pytest.raises(ConfigurationError) as refusal:
        read(tmp_path, text + "sink: /tmp\n")
    for field in ("job: Field required", "rounds: ", "dp.sample_rate: ", "sink: Extra inputs"):
        assert field in str(refusal.value)


def test_leaving_dp_away_is_a_fault_and_none_is_a_choice(tmp_path: Path) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("dp:"))
    with pytest.raises(ConfigurationError, match="dp: Field required"):
        read(tmp_path, TEXT.replace(line, ""))
    with pytest.raises(ConfigurationError, match="dp"):
        read(tmp_path, TEXT.replace(line, "dp:"))
    assert read(tmp_path, TEXT.replace(line, "dp: none")).dp is None


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="rounds is given twice"):
        read(tmp_path, TEXT + "rounds: 30\n")


def test_sizes_that_do_not_fit_the_adapter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"model\.hidden"):
        read(tmp_path, TEXT.replace("adapter: mlp", "adapter: logistic")).terms()


def test_an_adapter_of_the_silos_own_starts_from_a_file(tmp_path: Path) -> None:
    text = TEXT.replace(
        "{adapter: mlp, hidden: [4], seed: 1}", "{adapter: ours, layout: [{name: w, shape: [6]}]}"
    )
    asked = read(tmp_path, text)
    assert asked.terms().parameters == 6
    with pytest.raises(ConfigurationError, match="needs --model FILE"):
        asked.first_model()


def test_a_model_file_gives_back_the_model(tmp_path: Path) -> None:
    asked = read(tmp_path, TEXT)
    vector = asked.first_model()
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_file(asked.terms(), vector, {"job": "heart-risk"}))
    assert np.array_equal(read_model(path, asked.terms()), vector)


def test_a_model_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    asked = read(tmp_path, TEXT)
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_file(asked.terms(), asked.first_model(), {}))
    other = read(tmp_path, TEXT.replace("hidden: [4]", "hidden: [5]"))
    with pytest.raises(ConfigurationError, match="expected tensors"):
        read_model(path, other.terms())
    path.write_bytes(b"\x80\x04 not safetensors")
    with pytest.raises(ConfigurationError, match="expected a safetensors file"):
        read_model(path, asked.terms())


def test_a_model_file_with_a_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    asked = read(tmp_path, TEXT)
    vector = asked.first_model()
    vector[0] = np.nan
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_file(asked.terms(), vector, {}))
    with pytest.raises(ConfigurationError, match="finite"):
        read_model(path, asked.terms())


@pytest.mark.parametrize(("scheme", "bits"), [("additive", 20), ("pairwise", 20), ("bfv", 20), ("ckks", 16)])
def test_a_job_without_a_vector_has_the_finest_steps_that_its_scheme_carries(
    tmp_path: Path, scheme: str, bits: int
) -> None:
    asked = read(tmp_path, TEXT + f"scheme: {scheme}\n")
    spec = asked.spec(Federation().charter, asked.first_model())
    assert (spec.scheme, spec.vector.scale_bits) == (scheme, bits)


def test_a_vector_that_is_written_out_is_taken_as_it_is(tmp_path: Path) -> None:
    asked = read(tmp_path, TEXT + "scheme: ckks\nvector: {coordinate_bound: 64, scale_bits: 24}\n")
    vector = asked.spec(Federation().charter, asked.first_model()).vector
    assert (vector.coordinate_bound, vector.scale_bits) == (64.0, 24)


def test_a_job_may_claim_what_its_silos_prove(tmp_path: Path) -> None:
    asked = read(tmp_path, TEXT + "validity: {norm_bound: 2.5}\n")
    claim = asked.spec(Federation().charter, asked.first_model()).validity
    assert claim is not None
    assert claim.norm_bound == 2.5


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("scheme: rot13", "scheme"),
        ("validity: {norm_bound: -1}", r"validity\.norm_bound"),
        ("validity: {kind: range, norm_bound: 1}", r"validity\.kind"),
        ("validity: l2_bound", "validity"),
    ],
)
def test_a_scheme_or_validity_of_another_form_is_refused_with_its_field(
    tmp_path: Path, line: str, field: str
) -> None:
    with pytest.raises(ConfigurationError, match=field):
        read(tmp_path, TEXT + line + "\n")
