"""From a job's rounds to a silo's own model: what the agent keeps at the end, and what people make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privacy.keystore import load_identity
from privacy.personal_terms import PersonalTerms
from privacy.plan import TrainingTerms
from sealsum.cli import cli
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.algorithm_state import AlgorithmState
from silo_agent.algorithms.own_parts import DITTO
from silo_agent.data.holdout import held_out
from silo_agent.own_policy import load_own_policy
from silo_agent.personal.store import PersonalModels
from silo_agent.settings import read_settings
from tests.unit.silo_agent.loopback import Loopback, patients

BESIDE = PersonalTerms(kind="ditto", regular_weight=0.2, learning_rate=0.5, steps=5)
TRAINING = TrainingTerms(
    algorithm="dp_fedavg",
    local_steps=2,
    learning_rate=0.5,
    server_learning_rate=1.0,
    holdout=0.3,
    personal=BESIDE,
)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def serve(config: Path) -> int:
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    try:
        return agent.run(until_idle=True)
    finally:
        agent.close()


def told(config: Path, *words: str) -> Any:
    result = CliRunner().invoke(cli, ["silo", words[0], "--config", str(config), *words[1:], "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_agent_keeps_the_last_model_and_its_own_and_a_person_compares_them(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80), follow_models=True)
    job = servers.job(rounds=1, training=TRAINING)
    servers.open_round(job)
    assert serve(config) == EXIT_DONE

    state = tmp_path / "state"
    assert np.array_equal(PersonalModels(state).shared(job.digest, job.model), np.zeros(3))
    own = AlgorithmState(state).memory(job.digest).arrays[DITTO]

    said = told(config, "personalise", "--job", "heart", "--method", "job")
    assert said["chosen"] == {"last_round": 1.0}
    assert said["held_out_patients"] == held_out([f"p{number}" for number in range(80)], 0.3).sum()
    model = told(config, "show-model", "--job", "heart", "--method", "job")
    norm = np.hypot(model["tensors"]["layer1.weight"]["norm"], model["tensors"]["layer1.bias"]["norm"])
    assert norm == pytest.approx(float(np.linalg.norm(own)), rel=1e-6)
    assert "ditto" not in json.dumps([*servers.uploads])

    [followed] = told(config, "forgetting", "--job", "heart")["rounds"]
    assert followed["held_out"] is True
    assert followed["recall"] == [1.0, 0.0], "the zero model scores nobody above zero"


def test_a_job_without_own_parts_leaves_none(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))
    assert serve(config) == EXIT_DONE
    assert not list((tmp_path / "state" / "personal").glob("*/rounds.jsonl"))
    words = ["silo", "personalise", "--config", str(config), "--job", "heart", "--method", "job"]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 78
    assert "expected a job that leaves silos parts of their own" in refused.output
