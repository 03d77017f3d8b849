"""A job names public records by digest: its first model has seen those, no others, and no silo's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from privacy.errors import ConfigurationError
from privacy.update import model_bytes, model_digest
from sealsum.cli import cli
from sealsum.job_file import read_job_file
from silo_agent.data.csv_table import read_csv_table
from silo_agent.models.files import model_file, read_model
from tests.synthetic_world import digest_of_file

TEXT = """
job: heart-risk
purpose: predict heart disease
dataset: cardio
data:
  features:
    - {kind: numeric, column: age, low: 20, high: 90, impute: 55}
    - {kind: categorical, column: sex, categories: [f, m]}
  label: {column: num, threshold: 0}
  patient_id: patient
model: {adapter: logistic, seed: 1}
training: {algorithm: fedavg, local_steps: 5, learning_rate: 0.5}
public_data: {file: public.csv, digest: DIGEST, steps: 40, learning_rate: 0.5}
dp: none
rounds: 5
min_silos: 3
"""


def job_in(folder: Path, more: str = "") -> Path:
    """job.yaml beside the public table that it names."""
    generator = np.random.default_rng(5)
    rows = [
        f"p{place},{age:.1f},{'fm'[place % 2]},{int(age > 55)}"
        for place, age in enumerate(generator.uniform(20, 90, 200))
    ]
    table = folder / "public.csv"
    table.write_text("\n".join(["patient,age,sex,num", *rows]) + "\n")
    path = folder / "job.yaml"
    path.write_text(TEXT.replace("DIGEST", digest_of_file(table)) + more)
    return path


def warmed(job: Path, out: Path) -> Result:
    """The command."""
    return CliRunner().invoke(cli, ["job", "warm-up", str(job), "--out", str(out), "--json"])


def test_a_job_starts_from_what_public_records_have_taught(tmp_path: Path) -> None:
    path = job_in(tmp_path, "initial_model: first.safetensors\n")
    report = json.loads(warmed(path, tmp_path / "first.safetensors").stdout)
    asked = read_job_file(path)
    first = asked.first_model()
    assert report["initial_model"] == model_digest(asked.terms(), [model_bytes(first)])
    assert report["epsilon"] == 0
    assert report["loss"]["after"] < report["loss"]["before"]
    public = read_csv_table(tmp_path / "public.csv", asked.data, "record")
    right = ((public.features @ first[:-1] + first[-1] > 0) == public.labels).mean()
    assert right > 0.9


def test_the_same_records_give_the_same_model(tmp_path: Path) -> None:
    path = job_in(tmp_path)
    models = []
    for name in ("one", "other"):
        assert warmed(path, tmp_path / name).exit_code == 0
        models.append(read_model(tmp_path / name, read_job_file(path).terms()))
    assert np.array_equal(*models)


def test_records_of_another_digest_are_refused_by_name(tmp_path: Path) -> None:
    path = job_in(tmp_path)
    table = tmp_path / "public.csv"
    table.write_text(table.read_text() + "p999,30,f,1\n")
    result = warmed(path, tmp_path / "first.safetensors")
    assert result.exit_code == 78
    assert "public_data.digest: expected" in result.output
    assert digest_of_file(table) in result.output
    assert not (tmp_path / "first.safetensors").exists()


def test_a_job_that_names_public_records_starts_from_nothing_else(tmp_path: Path) -> None:
    path = job_in(tmp_path)
    with pytest.raises(ConfigurationError, match="expected the file that sealsum job warm-up made"):
        read_job_file(path).first_model()
    path = job_in(tmp_path, "initial_model: first.safetensors\n")
    asked = read_job_file(path)
    cold = model_file(asked.terms(), np.zeros(asked.terms().parameters, np.float32), {})
    (tmp_path / "first.safetensors").write_bytes(cold)
    with pytest.raises(ConfigurationError, match=r"warmed up on public_data .* got one on no public data"):
        asked.first_model()


def test_no_other_model_is_submitted_in_its_place(tmp_path: Path) -> None:
    path = job_in(tmp_path)
    terms = read_job_file(path).terms()
    cold = tmp_path / "cold.safetensors"
    cold.write_bytes(model_file(terms, np.zeros(terms.parameters, np.float32), {"public_data": "0" * 64}))
    arguments = ["job", "submit", str(path), "--state", str(tmp_path), "--model", str(cold)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 78
    assert "expected a model warmed up on public_data" in result.output


def test_without_public_records_there_is_nothing_to_warm_up_on(tmp_path: Path) -> None:
    path = job_in(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("public_data")))
    result = warmed(path, tmp_path / "first.safetensors")
    assert "public_data: expected {file, digest}" in result.output


def test_a_table_that_does_not_fit_the_schema_is_refused(tmp_path: Path) -> None:
    path = job_in(tmp_path)
    table = tmp_path / "public.csv"
    before = digest_of_file(table)
    table.write_text(table.read_text().replace(",m,", ",x,"))
    path.write_text(path.read_text().replace(before, digest_of_file(table)))
    result = warmed(path, tmp_path / "first.safetensors")
    assert result.exit_code == 78
    assert "sex" in result.output
