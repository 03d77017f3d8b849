"""``sealsum tune --private``: each trial is paid for before it reads, and the price is the ledger's sum."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from privacy.dp.accountant import epsilon
from privacy.errors import BudgetExhausted, ConfigurationError
from privacy.identity import SigningKey
from sealsum.cli import cli
from sealsum.simulator.private_trials import TRAINING_SHARE, PrivateTable, count_event
from sealsum.simulator.trials import Trial, trials_of
from silo_agent.ledger.ledger import read_account
from silo_agent.ledger.lifetime import lifetime_of

JOB = """\
job: risk
purpose: to try
dataset: cardio
data:
  features: [{kind: numeric, column: age, low: 20, high: 90, impute: 55}]
  label: {column: sick, threshold: 0}
  patient_id: patient
model: {adapter: logistic}
training: {server_learning_rate: 2.0}
dp: {unit: patient, sample_rate: 0.5, target_epsilon: 5, clip_l2: 1.0, normaliser: 100, delta: 1e-6}
rounds: 6
min_silos: 3
"""
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _trials(budget: float) -> list[Trial]:
    return trials_of(yaml.safe_load(JOB), {"training.server_learning_rate": [0.01, 4.0]}, budget)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two thousand patients whose label is their age."""
    generator = np.random.default_rng(0)
    lines = ["patient,age,sick"]
    lines += [
        f"p{number},{age},{int(age > 55)}" for number, age in enumerate(generator.integers(20, 91, 2000))
    ]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_price_of_all_trials_is_what_the_ledger_adds_up_to(tmp_path: Path, table: Path) -> None:
    """And an auditor recomputes it from the file: two events a trial, each by the accountant."""
    trials = _trials(4.0 * TRAINING_SHARE / 2)
    held = PrivateTable(table, tmp_path / "ledger", 4.0, 1e-5, 3)
    tuning = held.tune(trials, NOW)
    by_hand = sum(epsilon([trial.event], 1e-6) + epsilon([count_event(trial)], 1e-6) for trial in trials)
    assert tuning.epsilon_spent == pytest.approx(by_hand, abs=1e-12)
    assert tuning.epsilon_spent == pytest.approx(sum(one.epsilon for one in tuning.judged), abs=1e-12)
    assert 3.9 < tuning.epsilon_spent <= 4.0
    assert tuning.delta_spent == pytest.approx(4e-6)
    key = SigningKey.from_pem((tmp_path / "ledger" / "tuning.pem").read_bytes())
    account, entries = read_account(
        tmp_path / "ledger" / "tuning.jsonl", "tuning/ledger/tuning/tuning", key.verify_key
    )
    assert account.opening is not None
    assert lifetime_of(account.opening, account.jobs.values()).epsilon == tuning.epsilon_spent
    assert [entry.kind for entry in entries].count("begin") == 4


def test_the_largest_count_wins_and_counts_are_of_patients_told_right(tmp_path: Path, table: Path) -> None:
    """Of some 500 held out; a coin would tell half of them right, its deviation is 11."""
    trials = _trials(20.0 * TRAINING_SHARE)
    tuning = PrivateTable(table, tmp_path / "ledger", 40.0, 1e-5, 3).tune(trials, NOW)
    assert tuning.best.right == max(one.right for one in tuning.judged)
    assert tuning.best.trial in trials
    assert 350 < tuning.best.right < 600


def test_the_trial_that_would_pass_the_budget_is_refused_before_it_reads(tmp_path: Path) -> None:
    """No such table: a refusal that came after reading would be another one."""
    held = PrivateTable(tmp_path / "absent.csv", tmp_path / "ledger", 0.5, 1e-5, 3)
    with pytest.raises(BudgetExhausted, match=r"epsilon\.round: expected at most 0\.5"):
        held.tune(_trials(2.0), NOW)


def test_a_second_search_goes_on_from_the_first(tmp_path: Path, table: Path) -> None:
    held = PrivateTable(table, tmp_path / "ledger", 4.0, 1e-4, 3)
    held.tune(_trials(4.0 * TRAINING_SHARE / 2), NOW)
    with pytest.raises(BudgetExhausted, match=r"epsilon\.lifetime"):
        held.tune(_trials(1.0), NOW)


def test_shares_of_noise_for_more_silos_than_there_are_are_refused(tmp_path: Path, table: Path) -> None:
    tree = yaml.safe_load(JOB)
    tree["dp"] |= {"model": "distributed", "noise_shares": 5}
    trials = trials_of(tree, {"rounds": [3]}, 1.0)
    with pytest.raises(ConfigurationError, match="silos: expected 5 or more, one for each share of noise"):
        PrivateTable(table, tmp_path / "ledger", 4.0, 1e-5, 3).tune(trials, NOW)


def test_one_patient_more_moves_no_other_between_silos_or_held_out(tmp_path: Path, table: Path) -> None:
    """The attack: a split by row number would move everybody behind the newcomer."""
    trial = _trials(1.0)[0]
    before, out = PrivateTable(table, tmp_path / "ledger", 1.0, 1e-5, 3)._parts(trial)
    first, *rest = table.read_text(encoding="utf-8").splitlines()
    table.write_text("\n".join([first, "newcomer,33,0", *rest]), encoding="utf-8")
    after, more_out = PrivateTable(table, tmp_path / "ledger", 1.0, 1e-5, 3)._parts(trial)
    places, moved = (
        {patient: silo for silo, records in parts for patient in records.patients}
        for parts in ((*before.items(), ("out", out)), (*after.items(), ("out", more_out)))
    )
    assert moved.pop("newcomer")
    assert moved == places
    assert len(out) > 400


def test_the_command_says_what_was_spent(tmp_path: Path, table: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    shown = CliRunner().invoke(
        cli,
        ["tune", str(tmp_path / "job.yaml"), "--budget-epsilon", "4", "--private", str(table), "--ledger",
         str(tmp_path / "ledger"), "--grid", "training.server_learning_rate=0.01,4", "--json"],
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert told["records"] == "private"
    assert told["epsilon_spent"] == pytest.approx(sum(trial["epsilon"] for trial in told["trials"]))
    assert told["epsilon_spent"] <= 4.0


def test_a_private_table_without_a_ledger_is_refused(tmp_path: Path, table: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    shown = CliRunner().invoke(
        cli, ["tune", str(tmp_path / "job.yaml"), "--budget-epsilon", "4", "--private", str(table)]
    )
    assert shown.exit_code != 0
    assert "expected --private FILE and --ledger FOLDER together, got only one" in shown.output
