"""``sealsum diagnose`` and ``compare`` on tables that lie here; a diagnosis asked of silos in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privacy.errors import ConfigurationError
from privacy.schema import ClassLabel, DataSchema, NumericFeature
from sealsum.cli import cli
from sealsum.comparison.runs import alone, federated, job_under, rounds_to
from sealsum.diagnosis.ask_commands import diagnosis_of, query_of
from sealsum.diagnosis.drift import drift_of
from sealsum.job_file import JobFile
from sealsum.queries.answer import read_answer
from sealsum.simulator.gathered import HOSPITALS_JOB, gathered, hospitals
from sealsum.simulator.options import job_of
from sealsum.simulator.practice import Practice
from sealsum.simulator.scored import Scored
from silo_agent.data.records import Records
from tests.federation import Federation
from tests.query_cohort import ALLOWED, answered, opened

SCHEMA = DataSchema(
    features=(
        NumericFeature(column="x", low=-1, high=1, impute=0),
        NumericFeature(column="z", low=-1, high=1, impute=0, missing=("",)),
    ),
    label=ClassLabel(column="y", categories=("no", "yes")),
    patient_id="patient",
)
JOB = {
    **HOSPITALS_JOB,
    "data": SCHEMA.model_dump(mode="json", exclude_none=True),
    "training": {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.5},
    "rounds": 3,
}


def _run(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _table(path: Path, count: int, chance: float, gaps: bool = False, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    lines = ["patient,x,z,y"]
    for row in range(count):
        yes = random.random() < chance
        x = np.clip(random.normal(0.4 if yes else -0.4, 0.4), -1, 1)
        lines.append(f"p{row},{x:.4f},{'' if gaps else random.uniform(-1, 1)},{'yes' if yes else 'no'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _job_file(path: Path) -> Path:
    path.write_text(json.dumps(JOB), encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_four_hospitals_are_as_skewed_as_published_and_are_told_to_personalise(tmp_path: Path) -> None:
    """The claim that users meet first: on accuracy federation does not beat going alone, on AUC it does."""
    picture = tmp_path / "diagnosis.png"
    report = _run(
        "diagnose", "simulate", "--hospitals", "--seeds", "3", "--rounds", "20", "--plot", str(picture)
    )
    assert report["data"]["label_skew"]["divergence"]["estimate"] == pytest.approx(0.11, abs=0.005)
    figures = report["rounds"]["figures"]
    assert figures["accuracy"]["federated_over_local"]["mean"] < 0
    assert figures["AUC"]["federated_over_local"]["mean"] > 0.02
    assert report["advice"]["verdict"] == "personalise"
    assert any("On AUC federation beats training alone" in one for one in report["advice"]["reasons"])
    assert any("chol is missing at some silos" in one for one in report["advice"]["reasons"])
    assert picture.stat().st_size > 20_000


def test_tables_of_ones_own_and_a_split_are_diagnosed(tmp_path: Path) -> None:
    job = _job_file(tmp_path / "job.yaml")
    tables = [
        _table(tmp_path / f"{name}.csv", 60, 0.5, name == "b", seed) for seed, name in enumerate("abcd")
    ]
    report = _run("diagnose", "simulate", str(job), *map(str, tables), "--rounds", "0")
    assert "rounds" not in report
    assert report["advice"]["verdict"] == "mend_data"
    (gaps,) = [one for one in report["data"]["columns"] if one["column"] == "z"]
    assert gaps["missing_between"]["estimate"] == pytest.approx(1.0)
    shards = _run("diagnose", "simulate", str(job), str(tables[0]), "--split", "shards", "--shards", "1",
                  "--least", "10", "--silos", "2", "--rounds", "0")  # fmt: skip
    assert shards["data"]["label_skew"]["divergence"]["estimate"] > 0.8


def test_schema_drift_is_told_table_by_table(tmp_path: Path) -> None:
    good, bad = _table(tmp_path / "good.csv", 30, 0.5), tmp_path / "bad.csv"
    bad.write_text("patient,x,y\np,ten,maybe\nq,90,yes\nr,80,no\n", encoding="utf-8")
    drift = drift_of([good, bad], SCHEMA)
    assert all(sentence.startswith("bad.csv") for sentence in drift)
    for said in ("no column z", "1 of 3 cells that are no number", "beyond its range", "'maybe'"):
        assert any(said in sentence for sentence in drift)
    job = _job_file(tmp_path / "job.yaml")
    done = CliRunner().invoke(cli, ["diagnose", "simulate", str(job), str(good), str(bad)])
    assert done.exit_code == 78
    assert "schema drift" in done.output


def test_a_diagnosis_asked_of_silos_in_memory_says_what_their_tables_say(tmp_path: Path) -> None:
    """By the silos' own half of the query, under noise that large silos hardly feel."""
    federation = Federation(policy_text=ALLOWED)
    job = JobFile.model_validate(JOB)
    paths = [
        _table(tmp_path / f"s{seed}.csv", 900, chance, seed=seed)
        for seed, chance in enumerate((0.05, 0.3, 0.6, 0.9))
    ]
    records = gathered(paths, SCHEMA)
    noise = {"unit": "patient", "epsilon": 8.0, "delta": 1e-5}
    query = query_of(job, None, noise, 800, 2000, None)
    spec = query.spec(federation.charter)
    assert spec.job == "hospitals-diagnosis"
    assert spec.min_silos == 4
    updates = [answered(spec, one) for one in records.described.values()]
    report = diagnosis_of(read_answer(spec, opened(spec, updates), 4))
    job_file = _job_file(tmp_path / "job.yaml")
    exact = _run("diagnose", "simulate", str(job_file), *map(str, paths), "--rounds", "0")
    for noisy, plain in (
        (report["data"]["label_skew"]["divergence"], exact["data"]["label_skew"]["divergence"]),
        (report["data"]["columns"][0]["between"], exact["data"]["columns"][0]["between"]),
    ):
        assert abs(noisy["estimate"] - plain["estimate"]) < 6 * noisy["standard_error"] < 0.2
    assert report["privacy"]["epsilon"] <= 8.0
    with pytest.raises(ConfigurationError, match="patients_at_most"):
        query_of(job, None, noise, 3000, 2000, None)
    with pytest.raises(ConfigurationError, match="diagnose ask"):
        diagnosis_of({"statistics": [], "job": "j", "dataset": "d", "silos": 4, "privacy": {}})


def _even_cohort(width: int = 3) -> dict[str, Practice]:
    random = np.random.default_rng(2)
    silos = {}
    for silo in range(4):
        features = random.uniform(-1, 1, (40, width)).astype(np.float32)
        labels = (features[:, 0] + 0.2 * random.normal(size=40) > 0.3 * silo - 0.4).astype(np.float32)
        both = Records(features, labels)
        silos[f"silo-{silo}"] = Practice(both, both)
    return silos


def test_fedavg_of_one_step_on_even_silos_is_pooled_training() -> None:
    """The oracle of a comparison: the mean of even silos' gradients is the gradient of all records."""
    tree = {**JOB, "training": {"algorithm": "fedavg", "local_steps": 1, "learning_rate": 0.5}, "rounds": 6}
    silos: Any = _even_cohort(2)
    job = job_under(tree, "fedavg")
    pooled, _ = alone(job, silos, 0)
    run = federated("fedavg", job, silos, 0)
    assert run.failure == ""
    assert run.final["AUC"].mean == pytest.approx(pooled.final["AUC"].mean, abs=2e-3)
    assert len(run.curve) == 6
    assert run.bytes_up == 4 * (job.terms().parameters + 1)


def test_compare_puts_algorithms_beside_pooled_and_local(tmp_path: Path) -> None:
    picture = tmp_path / "compare.svg"
    report = _run("compare", "--hospitals", "--rounds", "3", "--seeds", "2", "--algorithm", "fedavg",
                  "--target", "0.5", "--target", "0.99", "--plot", str(picture))  # fmt: skip
    assert [row["algorithm"] for row in report["rows"]] == ["pooled", "local", "fedavg"]
    row = report["rows"][-1]
    assert row["rounds_to"]["0.99"] == {"median": None, "reached": "0/2"}
    assert row["rounds_to"]["0.5"]["reached"] == "2/2"
    assert row["accuracy"]["worst_silo"]["mean"] <= row["accuracy"]["mean_over_silos"]["mean"]
    assert set(row["accuracy"]["by_silo"]) == {"cleveland", "hungary", "switzerland", "va-long-beach"}
    assert picture.exists()
    shown = CliRunner().invoke(
        cli, ["compare", "--hospitals", "--rounds", "1", "--seeds", "1", "--algorithm", "fedavg"]
    )
    assert shown.exit_code == 0
    assert "fedavg" in shown.output


def test_an_algorithm_that_the_job_cannot_have_is_refused_by_name() -> None:
    done = CliRunner().invoke(cli, ["compare", "--hospitals", "--algorithm", "no_such"])
    assert done.exit_code == 78
    assert "no_such" in done.output


def test_rounds_to_a_target_go_the_figures_way() -> None:
    assert rounds_to((0.5, 0.7, 0.9), 0.7, "accuracy") == 2
    assert rounds_to((0.5, 0.7), 0.9, "accuracy") is None
    assert rounds_to((0.5, 0.3), 0.4, "RMSE") == 2
    lower = Scored("RMSE", {"a": 0.2, "b": 0.6}, 0.4)  # type: ignore[dict-item]
    assert (lower.worst, lower.share_below(0.5)) == (0.6, 0.5)


def test_who_is_held_out_is_fixed_by_the_seed_and_patients_stay_together(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    rows = [f"p{row // 2},{row % 2},0,{'yes' if row // 2 % 2 else 'no'}" for row in range(80)]
    path.write_text("patient,x,z,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    twin = tmp_path / "two.csv"
    twin.write_bytes(path.read_bytes())
    records = gathered([path, twin], SCHEMA)
    one, again, other = records.parted(1), records.parted(1), records.parted(2)
    for silo, practice in one.items():
        assert not set(practice.training.patients) & set(practice.held_out.patients)
        assert len(practice.training) + len(practice.held_out) == 80
        assert again[silo].held_out.patients == practice.held_out.patients
    assert any(other[silo].held_out.patients != one[silo].held_out.patients for silo in one)


def test_the_hospitals_are_flambys_patients() -> None:
    assert [len(records) for records in hospitals().silos.values()] == [303, 261, 46, 130]
    assert job_of(dict(HOSPITALS_JOB)).training.algorithm == "fedavg"


def test_tables_without_a_split_and_a_split_of_several_are_refused(tmp_path: Path) -> None:
    table = _table(tmp_path / "a.csv", 30, 0.5)
    with pytest.raises(ConfigurationError, match="two or more, one a silo"):
        gathered([table], SCHEMA)
    done = CliRunner().invoke(cli, ["compare"])
    assert "--hospitals" in done.output


def test_a_table_in_the_place_of_the_job_file_is_told_so(tmp_path: Path) -> None:
    table = _table(tmp_path / "a.csv", 20, 0.5)
    done = CliRunner().invoke(cli, ["diagnose", "simulate", str(table), str(table)])
    assert done.exit_code == 78
    assert "expected a job file" in done.output
    assert "give JOB.yaml before tables" in done.output


def test_the_hospitals_come_without_a_job(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("job: x\n", encoding="utf-8")
    done = CliRunner().invoke(cli, ["diagnose", "simulate", str(job), "--hospitals"])
    assert done.exit_code == 78
    assert "--hospitals: expected alone" in done.output


def test_a_comparison_names_its_algorithms_whole_at_80_columns_and_one_seed_has_no_spread() -> None:
    arguments = ["compare", "--hospitals", "--rounds", "1", "--seeds", "1"]
    names = ("sqrt_n_over_divergence", "fedavg")
    arguments += [word for name in names for word in ("--algorithm", name)]
    done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in names)
    assert "±" not in done.output
