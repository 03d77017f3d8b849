"""What a person at the silo sees of her own models: made, compared, listed, shown; nobody else reads them."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from privacy.ids import Digest
from privacy.plan import ModelTerms, TrainingTerms
from privacy.update import model_bytes, model_digest
from sealsum.cli import cli
from silo_agent.data.holdout import held_out
from silo_agent.datasets import Datasets
from silo_agent.models.files import model_file
from silo_agent.models.layouts import model_terms
from silo_agent.personal.store import PersonalModels
from tests.approval_world import ApprovingSilo

TERMS = model_terms("logistic", 2)
SHARED = np.array([3.0, 0.5, 0.2], dtype=np.float32)
PATIENTS = 80


def training(**changes: Any) -> TrainingTerms:
    said: dict[str, Any] = {
        "algorithm": "dp_fedavg",
        "local_steps": 2,
        "learning_rate": 0.5,
        "server_learning_rate": 1.0,
    }
    return TrainingTerms(**(said | changes))


@pytest.fixture
def silo(tmp_path: Path) -> ApprovingSilo:
    """A silo with patients whose illness depends on age."""
    silo = ApprovingSilo(tmp_path)
    generator = np.random.default_rng(3)
    rows = ["patient,age,pressure,num"]
    for number in range(PATIENTS):
        age, pressure = int(generator.integers(10, 90)), int(generator.integers(80, 200))
        sick = int(generator.uniform() < 1 / (1 + np.exp(-(age - 45) / 8)))
        rows.append(f"p{number},{age},{pressure},{sick}")
    (tmp_path / "cardio.csv").write_text("\n".join(rows) + "\n")
    return silo


def shown(silo: ApprovingSilo, **terms: Any) -> Any:
    initial = model_digest(TERMS, [model_bytes(np.zeros(3, dtype=np.float32))])
    return silo.show(model=TERMS, initial_model=initial, training=training(**terms))


def keep_shared(silo: ApprovingSilo, job: Digest) -> None:
    """As the agent does at the job's end."""
    raw = model_bytes(SHARED)
    PersonalModels(silo.state).keep_shared(job, model_digest(TERMS, [raw]), raw)


def written(folder: Path, terms: ModelTerms, vector: NDArray[np.float32]) -> Path:
    """A file as ``sealsum job model`` writes it."""
    path = folder / "model.safetensors"
    path.write_bytes(model_file(terms, vector, {}))
    return path


def run(silo: ApprovingSilo, *words: str) -> Result:
    return CliRunner().invoke(cli, ["silo", words[0], "--config", str(silo.config), *words[1:]])


def told(silo: ApprovingSilo, *words: str) -> Any:
    result = run(silo, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_personal_model_is_made_compared_listed_and_shown(silo: ApprovingSilo) -> None:
    spec = shown(silo, holdout=0.3)
    keep_shared(silo, spec.digest)
    said = told(silo, "personalise", "--job", "heart", "--prior-width", "0.5")
    assert set(said["models"]) == {"local_only", "shared", "personal"}
    assert said["shared_model"] == model_digest(TERMS, [model_bytes(SHARED)])
    assert said["held_out_patients"] == held_out([f"p{n}" for n in range(PATIENTS)], 0.3).sum()
    assert said["held_out_patients"] + said["trained_patients"] == PATIENTS
    assert "nothing that is compared here was trained on" in said["holdout"]
    accuracy = said["models"]["personal"]["figures"]["accuracy"]
    assert 0 <= accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1
    assert said["models"]["local_only"]["over_local_only"] == {}
    assert set(said["models"]["personal"]["over_shared"]) == {"accuracy", "auc", "loss"}

    told(silo, "personalise", "--job", spec.digest[:8], "--method", "ditto", "--layers", "layer1.bias")
    assert [one["method"] for one in told(silo, "models")["models"]] == ["ditto", "map"]
    gained = told(silo, "gains", "--job", "heart")["gains"]
    assert [one["layers"] for one in gained] == ["layer1.bias", "all"]
    model = told(silo, "show-model", "--job", "heart", "--method", "map")
    assert model["tensors"]["layer1.weight"]["shape"] == [1, 2]
    for words in (
        ("models",),
        ("gains", "--job", "heart"),
        ("show-model", "--job", "heart", "--method", "map"),
    ):
        assert run(silo, *words).exit_code == 0


def test_what_is_kept_is_for_its_owner_only(silo: ApprovingSilo) -> None:
    spec = shown(silo)
    keep_shared(silo, spec.digest)
    file = Path(told(silo, "personalise", "--job", "heart", "--method", "ditto")["file"])
    for path in (file, file.with_suffix(".json"), *file.parent.glob("shared-*.f32")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.with_suffix(".json").chmod(0o644)
    assert "expected mode 0600" in run(silo, "models").output


def test_a_silo_that_took_no_part_starts_from_the_file_it_is_given(
    silo: ApprovingSilo, tmp_path: Path
) -> None:
    shown(silo)
    missing = run(silo, "personalise", "--job", "heart")
    assert missing.exit_code == 78
    assert "--model FILE" in missing.output
    other = written(tmp_path, TERMS, SHARED)
    said = told(silo, "personalise", "--job", shown(silo).digest, "--method", "ditto", "--model", str(other))
    assert "local_only has not" in said["holdout"]


def test_another_jobs_model_is_no_start(silo: ApprovingSilo, tmp_path: Path) -> None:
    shown(silo)
    other = written(tmp_path, model_terms("logistic", 5), np.zeros(6, dtype=np.float32))
    refused = run(silo, "personalise", "--job", "heart", "--model", str(other))
    assert refused.exit_code == 78
    assert "expected tensors" in refused.output


def test_another_holdout_than_the_jobs_is_refused(silo: ApprovingSilo) -> None:
    spec = shown(silo, holdout=0.2)
    keep_shared(silo, spec.digest)
    refused = run(silo, "personalise", "--job", "heart", "--holdout", "0.4")
    assert refused.exit_code == 78
    assert "the job holds out that share" in refused.output


def test_data_that_are_not_registered_for_the_purpose_are_not_read(silo: ApprovingSilo) -> None:
    spec = shown(silo)
    keep_shared(silo, spec.digest)
    document = json.loads(silo.config.read_text())
    document["datasets"]["cardio"]["purpose"] = "billing"
    silo.config.write_text(json.dumps(document))
    refused = run(silo, "personalise", "--job", "heart")
    assert refused.exit_code == 3
    assert "dataset.purpose" in refused.output


def test_a_picture_is_drawn_of_all_models(silo: ApprovingSilo, tmp_path: Path) -> None:
    spec = shown(silo)
    keep_shared(silo, spec.digest)
    told(silo, "personalise", "--job", "heart", "--method", "ditto")
    told(silo, "gains", "--job", "heart", "--picture", str(tmp_path / "gains.svg"))
    assert "ditto" in (tmp_path / "gains.svg").read_text() or (tmp_path / "gains.svg").stat().st_size > 5000
    assert (
        "expected a file that ends in"
        in run(silo, "gains", "--job", "heart", "--picture", str(tmp_path / "gains.txt")).output
    )


def test_a_job_trains_on_nobody_whom_it_holds_out(silo: ApprovingSilo) -> None:
    dataset = silo.settings.datasets["cardio"]
    spec, whole = shown(silo, holdout=0.3), shown(silo)
    reader = Datasets()
    trained = reader.read(dataset, spec, 1)
    assert not held_out(trained.patients, 0.3).any()
    assert reader.read(dataset, spec, 1) is trained
    assert len(reader.read(dataset, whole, 1)) == PATIENTS
    assert len(reader.everybody(dataset, spec)) == PATIENTS


def test_jobs_that_hold_out_nobody_have_the_digest_they_always_had(silo: ApprovingSilo) -> None:
    assert "holdout" not in training().model_dump()
    assert training(holdout=0.25).model_dump(mode="json")["holdout"] == "0.25"
    with pytest.raises(ValueError, match="holdout"):
        training(holdout=0.7)
