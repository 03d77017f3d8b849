"""``sealsum tune``: every trial at one budget, nobody's budget spent, nothing submitted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from privacy.dp.accountant import epsilon
from privacy.errors import ConfigurationError
from sealsum.cli import cli
from sealsum.job_file import read_job_file
from sealsum.simulator.practice import made_up, public_table
from sealsum.simulator.trials import cost_of_all, trials_of, tried
from silo_agent.models.files import model_file
from silo_agent.models.layouts import initial_vector

JOB = """\
job: risk
purpose: to try
dataset: cardio
data:
  features:
    - {kind: numeric, column: age, low: 20, high: 90, impute: 55}
    - {kind: numeric, column: rate, low: 40, high: 200, impute: 80, indicator: true}
    - {kind: categorical, column: sex, categories: [f, m]}
  label: {column: sick, threshold: 0}
  patient_id: patient
model: {adapter: logistic}
training: {server_learning_rate: 2.0}
dp: {unit: patient, sample_rate: 0.5, target_epsilon: 5, clip_l2: 1.0, normaliser: 100, delta: 1e-5}
rounds: 10
min_silos: 3
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A public table whose label is the age."""
    generator = np.random.default_rng(0)
    lines = ["patient,age,rate,sex,sick"]
    for number, age in enumerate(generator.integers(20, 91, 200)):
        sex = "fm"[generator.integers(2)]
        lines.append(f"p{number},{age},{generator.integers(40, 200)},{sex},{int(age > 55)}")
    path = tmp_path / "public.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    shown = CliRunner().invoke(cli, ["tune", *map(str, arguments)])
    return shown.exit_code, shown.stdout, shown.stderr


def tree() -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load(JOB)
    return loaded


def test_every_trial_is_made_for_the_budget_and_none_passes_it() -> None:
    trials = trials_of(tree(), {"rounds": [5, 20], "dp.clip_l2": [0.5, 1.0]}, 2.0)
    assert [trial.settings for trial in trials] == [
        {"rounds": rounds, "dp.clip_l2": clip} for rounds in (5, 20) for clip in (0.5, 1.0)
    ]
    for trial in trials:
        assert 1.99 < trial.epsilon <= 2.0
        assert trial.event.steps == trial.settings["rounds"]
    # More steps take more noise.
    assert trials[2].dp.noise_multiplier > trials[0].dp.noise_multiplier


def test_what_choosing_on_private_records_would_cost_is_one_composition() -> None:
    trials = trials_of(tree(), {"training.server_learning_rate": [1, 2, 4]}, 2.0)
    assert cost_of_all(trials) == epsilon([trial.event for trial in trials], 1e-5)
    assert 2.0 < cost_of_all(trials) < 6.0


def test_on_silos_records_the_cost_is_said_and_nothing_is_submitted(job: Path) -> None:
    code, out, err = run(job, "--budget-epsilon", 2)
    assert code == 78
    assert "all 5 trials cost ε = " in out
    assert "each trial is a job of its own" in err
    code, out, _ = run(job, "--budget-epsilon", 2, "--json")
    assert (code, json.loads(out)["submitted"]) == (78, 0)


def test_the_best_settings_on_a_public_table_are_named(job: Path, table: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tune.png"
    code, out, err = run(
        job, "--budget-epsilon", 5, "--public", table, "--grid", "training.server_learning_rate=0.0001,5",
        "--plot", picture, "--json",
    )  # fmt: skip
    assert code == 0, err
    document = json.loads(out)
    assert document["best"] == {"training.server_learning_rate": 5.0}
    assert document["epsilon_spent"] == 0.0
    assert len(document["trials"]) == 2
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_made_up_records_are_said_to_be_made_up(job: Path) -> None:
    code, out, err = run(job, "--budget-epsilon", 5, "--synthetic", "--repetitions", 1)
    assert code == 0, err
    assert "Records were made up" in out
    assert "Nobody's budget was spent" in out


def test_made_up_records_fit_the_schema_and_can_be_learnt() -> None:
    trial = trials_of(tree(), {"training.server_learning_rate": [8]}, 8.0)[0]
    practice = made_up(trial.job.data, 2000)
    assert practice.training.features.shape[1] == trial.job.data.width
    assert np.all(np.abs(practice.training.features) <= 1)
    outcome = tried(trial, practice, 3, 2)
    assert outcome.mean > 0.7


def test_a_silo_is_as_large_as_the_job_divides_by(table: Path) -> None:
    trial = trials_of(tree(), {"rounds": [2]}, 5.0)[0]
    silos = public_table(table, trial.job.data).silos(3, 200, 0)
    assert sorted(silos) == ["silo-1", "silo-2", "silo-3"]
    assert {len(records) for records in silos.values()} == {200}


def test_held_out_records_are_in_no_silo(table: Path) -> None:
    trial = trials_of(tree(), {"rounds": [2]}, 5.0)[0]
    practice = public_table(table, trial.job.data)
    trained = {row.tobytes() for row in practice.training.features}
    scored = [row.tobytes() for row in practice.held_out.features]
    # Rows can coincide by chance in so few columns, but hardly.
    assert sum(row in trained for row in scored) <= 2
    assert len(practice.training) + len(practice.held_out) == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "dp.clip_l2=one"], "expected PATH=V1,V2,… with numbers"),
        (["--grid", "clip"], "expected PATH=V1,V2,… with numbers"),
        (["--grid", "nowhere.at.all=1"], "such as dp.clip_l2, got nowhere.at.all"),
        (["--grid", "dp.clip_l2=-1"], "makes no job:\n  dp.clip_l2"),
        (["--grid", "rounds=" + ",".join(map(str, range(1, 202)))], "expected at most 200 trials, got 201"),
        (["--synthetic", "--public", "x.csv"], "got --public and --synthetic"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(job: Path, arguments: list[str], message: str) -> None:
    code, _, err = run(job, "--budget-epsilon", 2, *arguments)
    assert code == 78
    assert message in err


def test_a_job_without_dp_has_no_budget_to_search_under() -> None:
    with pytest.raises(ConfigurationError, match="without DP there is no budget"):
        trials_of(tree() | {"dp": "none"}, {"rounds": [1]}, 1.0)


PIXELS = [f"p{number}" for number in range(16)]
COLUMNS = ", ".join(f"{{kind: numeric, column: {pixel}, low: 0, high: 1, impute: 0}}" for pixel in PIXELS)
IMAGES = f"""\
job: digits
purpose: to try
dataset: images
data:
  features: [{COLUMNS}]
  label: {{column: sick, threshold: 0}}
  patient_id: patient
  views: {{rows: 4, columns: 4, mirror: true}}
model: {{adapter: logistic}}
training: {{server_learning_rate: 2.0}}
dp: {{unit: record, sample_rate: 1, target_epsilon: 20, clip_l2: 1.0, normaliser: 60, delta: 1e-5}}
rounds: 8
min_silos: 3
"""


def _images(path: Path) -> Path:
    """Bright ones are ill."""
    generator = np.random.default_rng(0)
    lines = [f"patient,{','.join(PIXELS)},sick"]
    for number in range(120):
        sick = number % 2
        cells = generator.uniform(0, 0.4, 16) + 0.6 * sick
        lines.append(f"p{number}," + ",".join(f"{cell:.3f}" for cell in cells) + f",{sick}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("source", ["public", "synthetic"])
def test_a_job_with_views_is_tried_on_all_of_them_and_scored_on_each_image(
    tmp_path: Path, source: str
) -> None:
    trials = trials_of(yaml.safe_load(IMAGES), {"rounds": [8.0]}, 20)
    schema = trials[0].job.data
    practice = (
        public_table(_images(tmp_path / "i.csv"), schema) if source == "public" else made_up(schema, 120)
    )
    assert (practice.training.views, practice.training.unit_count, len(practice.training)) == (2, 90, 180)
    assert (practice.held_out.views, len(practice.held_out)) == (1, 30)
    silo = practice.silos(2, 60, 0)["silo-1"]  # type: ignore[index]  # an id as a string
    assert (silo.unit_count, silo.views) == (60, 2)
    images = silo.features.reshape(60, 2, 4, 4)
    np.testing.assert_array_equal(images[:, 0, :, ::-1], images[:, 1])
    outcome = tried(trials[0], practice, 3, 1)
    assert not outcome.failure
    if source == "public":
        assert outcome.mean > 0.8


def test_a_job_on_a_public_base_is_tried_on_the_file_it_names(tmp_path: Path, table: Path) -> None:
    path = tmp_path / "job.yaml"
    head = "model: {adapter: mlp, hidden: [4]"
    path.write_text(JOB.replace("model: {adapter: logistic}", head + "}"), encoding="utf-8")
    whole = read_job_file(path).terms()
    (tmp_path / "base.safetensors").write_bytes(model_file(whole, initial_vector(whole, 1), {}))
    base = "base: {name: ours, file: base.safetensors, trainable: [layer2.bias], low_rank: [layer1], rank: 2}"
    path.write_text(JOB.replace("model: {adapter: logistic}", f"{head}, {base}}}"), encoding="utf-8")
    assert read_job_file(path).first_model().size == read_job_file(path).terms().parameters == 1 + 2 * (5 + 4)
    code, out, err = run(
        path, "--budget-epsilon", 5, "--public", table, "--repetitions", 1, "--grid", "rounds=5", "--json"
    )
    assert code == 0, err
    assert all(trial["scores"] for trial in json.loads(out)["trials"])
