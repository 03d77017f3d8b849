"""What a silo is told of classes that a job's models have forgotten: its own numbers, kept by itself."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privacy.canonical import sha256_hex
from privacy.errors import ConfigurationError
from sealsum.cli import cli
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from silo_agent.personal.following import Followed, Following, forgotten
from silo_agent.personal.recall import recall_by_class
from silo_agent.personal.workplace import Workplace
from tests.approval_world import ApprovingSilo

JOB = sha256_hex(b"job")


def followed(number: int, *recall: float | None, job: str = "heart") -> Followed:
    model = sha256_hex(str(number).encode())
    return Followed(job=job, job_digest=JOB, round=number, model=model, held_out=True, recall=recall)


def place(**changes: Any) -> Workplace:
    said: dict[str, Any] = {
        "features": np.array([[1.0], [0.5], [-1.0], [-0.5]], dtype=np.float32),
        "labels": np.array([1, 0, 0, 0], dtype=np.float32),
        "patients": ("a", "b", "c", "d"),
    }
    return Workplace(ADAPTERS["logistic"], model_terms("logistic", 1), Records(**(said | changes)))


def test_recall_is_the_part_of_each_class_that_is_found() -> None:
    above_zero = np.array([1.0, 0.0], dtype=np.float32)
    assert recall_by_class(place(), above_zero) == (pytest.approx(2 / 3), 1.0)
    assert recall_by_class(place(labels=np.zeros(4, dtype=np.float32)), above_zero) == (0.5, None)


def test_a_job_that_predicts_no_classes_is_told() -> None:
    with pytest.raises(ConfigurationError, match="expected a job that predicts classes"):
        recall_by_class(place(kind="real"), np.zeros(2, dtype=np.float32))


def test_forgetting_is_the_best_of_earlier_models_minus_the_last() -> None:
    told = forgotten([followed(1, 0.4, 0.9), followed(2, 0.8, 0.9), followed(3, 0.7, 0.95)])
    assert (told[0].best, told[0].best_round, told[0].last) == (0.8, 2, 0.7)
    assert told[0].forgetting == pytest.approx(0.1)
    assert told[1].forgetting == pytest.approx(-0.05)


def test_a_class_that_the_silo_lacks_has_no_figure() -> None:
    assert set(forgotten([followed(1, 0.4, None), followed(2, 0.5, None)])) == {0}


def test_a_round_noted_twice_counts_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    following = Following(tmp_path)
    for one in (followed(1, 0.1, 0.1), followed(2, 0.2, 0.2), followed(2, 0.3, 0.3)):
        following.note(one)
    [rounds] = following.jobs().values()
    assert [one.recall[0] for one in rounds] == [0.1, 0.3]
    path = tmp_path / "personal" / JOB / "rounds.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_person_is_shown_what_was_forgotten(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path)
    words = ["silo", "forgetting", "--config", str(silo.config), "--job", "heart"]
    assert "no round of it was followed here" in CliRunner().invoke(cli, words).output
    following = Following(silo.state)
    following.note(followed(1, 0.9, 0.2))
    following.note(followed(2, 0.5, 0.6))
    said = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert said["classes"]["0"] == {"best": 0.9, "best_round": 1, "last": 0.5, "forgetting": 0.4}
    assert "+0.400" in CliRunner().invoke(cli, words).output
