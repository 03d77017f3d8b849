"""A server that hands out other bytes as the next model costs a silo at most a round, never its agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from privacy.plan import RoundPlan
from privacy.wire.messages import RoundResult
from silo_agent.agent import EXIT_DONE
from silo_agent.algorithm_state import AlgorithmState
from tests.unit.silo_agent.loopback import Loopback, patients, run_agent

NEXT = "e" * 64


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


@pytest.mark.parametrize("floats", [3, 2], ids=["other bytes", "too few"])
def test_a_next_model_that_is_not_the_results_is_left_and_the_round_counts(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture, floats: int
) -> None:
    config, training = servers.silo_files(tmp_path, patients(80)), servers.job().training
    local = type(training.local)(control="zero")
    job = servers.job(rounds=3, training=training.model_copy(update={"local": local}))
    servers.models[NEXT] = np.ones(floats, dtype="<f4").tobytes()
    servers.open_round(job, 1)
    honest = servers.opened

    def with_another_model(plan: RoundPlan) -> RoundResult:
        servers.ended = True
        return honest(plan).model_copy(update={"model_out": NEXT})

    servers.result_of = with_another_model
    assert run_agent(config) == EXIT_DONE
    kept = AlgorithmState(tmp_path / "state").memory(job.digest)
    assert (kept.round, kept.model_out) == (1, NEXT)
    assert "ahead" in kept.arrays, "to be settled by a round that starts from that model"
    assert [one for one in caplog.records if one.getMessage() == "model_not_ahead"]
