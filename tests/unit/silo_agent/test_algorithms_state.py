"""What an algorithm remembers counts with the survivors' list, outlives restarts, and goes after the job."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privacy.errors import SealsumError, Unprocessable
from privacy.keystore import load_identity
from privacy.plan import RoundPlan
from privacy.sent_terms import SparseTerms
from privacy.wire.messages import RoundResult
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.algorithm_state import DAYS_KEPT, AlgorithmState
from silo_agent.algorithms.memory import FIRST
from silo_agent.checked_model import CheckedModel
from silo_agent.own_policy import load_own_policy
from silo_agent.remembered import Remembered
from silo_agent.settings import read_settings
from tests.federation import Federation
from tests.unit.silo_agent.loopback import Loopback, patients, run_agent

FEDERATION = Federation()
SPEC = FEDERATION.job_spec(rounds=9)
KEEP = {"control": np.arange(6, dtype=np.float32), "loss": np.array([0.5], dtype=np.float32)}
OTHER = {"control": np.ones(6, dtype=np.float32)}
OUT, LATER = "b" * 64, "c" * 64
TODAY = date(2026, 11, 30)


def _plan(number: int) -> RoundPlan:
    return FEDERATION.plan(SPEC, number, model="a" * 64)


def _result(plan: RoundPlan, model_out: str | None = OUT, **changes: Any) -> RoundResult:
    fields: dict[str, Any] = {
        "outcome": "aborted" if model_out is None else "opened",
        "reason": "",
        "survivors": () if model_out is None else plan.silos,
        "model_in": plan.model,
        "model_out": model_out,
        "openings": int(model_out is not None),
        "job_state": "running",
    }
    return RoundResult(**{**fields, **changes})


def _same(one: Any, other: Any) -> bool:
    return set(one) == set(other) and all(np.array_equal(one[name], other[name]) for name in one)


def test_a_round_counts_once_its_result_names_the_silo(tmp_path: Path) -> None:
    state, plan = AlgorithmState(tmp_path), _plan(1)
    state.stage(plan, KEEP)
    assert state.memory(plan.job_digest) is FIRST, "not before"
    state.commit(plan, _result(plan), True, None)
    kept = AlgorithmState(tmp_path).memory(plan.job_digest)
    assert (kept.round, kept.model_out) == (1, OUT)
    assert _same(kept.arrays, KEEP)


@pytest.mark.parametrize("end", ["dropped out", "aborted", "another model"])
def test_a_round_that_does_not_count_leaves_the_memory_of_the_one_before(tmp_path: Path, end: str) -> None:
    state, first, second = AlgorithmState(tmp_path), _plan(1), _plan(2)
    state.stage(first, KEEP)
    state.commit(first, _result(first), True, None)
    state.stage(second, OTHER)
    result = {
        "dropped out": _result(second, LATER),
        "aborted": _result(second, None),
        "another model": _result(second, LATER, model_in="d" * 64),
    }[end]
    state.commit(second, result, end != "dropped out", None)
    kept = state.memory(second.job_digest)
    assert (kept.round, kept.model_out) == (1, OUT)
    assert _same(kept.arrays, KEEP)
    assert not list(tmp_path.rglob("*.staged"))


def test_what_the_result_completes_replaces_what_was_staged_and_the_old_goes(tmp_path: Path) -> None:
    state = AlgorithmState(tmp_path)
    for number, out in ((1, OUT), (2, LATER)):
        plan = _plan(number)
        state.stage(plan, KEEP)
        state.commit(plan, _result(plan, out), True, OTHER)
        state.commit(plan, _result(plan, out), True, KEEP)  # asked again after a crash: done once
    kept = state.memory(plan.job_digest)
    assert (kept.round, kept.model_out) == (2, LATER)
    assert _same(kept.arrays, OTHER)
    assert len(list(tmp_path.rglob("*.kept"))) == 1


def test_of_two_files_left_by_a_crash_the_later_round_is_the_memory(tmp_path: Path) -> None:
    state = AlgorithmState(tmp_path)
    plans = [_plan(1), _plan(2)]
    for plan, arrays in zip(plans, (KEEP, OTHER), strict=True):
        state.stage(plan, arrays)
        staged = next(tmp_path.rglob("*.staged"))
        staged.rename(staged.with_name(f"{plan.round:09d}-{OUT}.kept"))
    assert _same(state.memory(plans[0].job_digest).arrays, OTHER)


def test_files_are_the_owners_alone_and_a_changed_byte_is_refused(tmp_path: Path) -> None:
    state, plan = AlgorithmState(tmp_path), _plan(1)
    state.stage(plan, KEEP)
    state.commit(plan, _result(plan), True, None)
    (path,) = tmp_path.rglob("*.kept")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(SealsumError, match="does not read back"):
        state.memory(plan.job_digest)


def test_an_ended_job_is_forgotten_thirty_days_later(tmp_path: Path) -> None:
    state, plan = AlgorithmState(tmp_path), _plan(1)
    state.stage(plan, KEEP)
    assert state.running() == {plan.job_digest: plan.job}
    state.job_ended(plan.job_digest, TODAY)
    state.job_ended(plan.job_digest, TODAY + timedelta(days=20))  # heard again: the first day counts
    assert state.running() == {}
    assert state.purge(TODAY + timedelta(days=DAYS_KEPT - 1)) == ()
    assert state.purge(TODAY + timedelta(days=DAYS_KEPT)) == (plan.job_digest,)
    assert not list((tmp_path / "algorithms").iterdir())


def test_an_algorithm_without_memory_leaves_no_file(tmp_path: Path) -> None:
    AlgorithmState(tmp_path).stage(_plan(1), {})
    assert not list(tmp_path.iterdir())


# --- by the agent ---


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def _scaffold(servers: Loopback, rounds: int) -> Any:
    training = servers.job().training
    local = type(training.local)(control="zero")
    return servers.job(rounds=rounds, training=training.model_copy(update={"local": local}))


def _memory(config: Path, plan: RoundPlan) -> Any:
    return AlgorithmState(read_settings(config).state_dir).memory(plan.job_digest)


def test_an_agent_that_drops_out_remembers_the_round_before(servers: Loopback, tmp_path: Path) -> None:
    config, job = servers.silo_files(tmp_path, patients(80)), _scaffold(servers, 3)
    servers.open_round(job, 1)
    honest = servers.opened

    def left_out_of_the_second(plan: RoundPlan) -> RoundResult:
        if plan.round == 1:
            servers.open_round(job, 2)
            return honest(plan)
        return honest(plan, "finished").model_copy(update={"survivors": plan.silos[1:]})

    servers.result_of = left_out_of_the_second
    assert run_agent(config) == EXIT_DONE
    kept = AlgorithmState(tmp_path / "state").memory(job.digest)
    assert (kept.round, set(kept.arrays)) == (1, {"control"}), "settled by the model that came out"
    assert np.any(kept.arrays["control"] != 0)
    (ended,) = (tmp_path / "state" / "algorithms").rglob("ended")
    due = date.fromisoformat(ended.read_text())
    assert due - datetime.now(UTC).date() in (timedelta(days=DAYS_KEPT), timedelta(days=DAYS_KEPT - 1))


def test_a_round_whose_result_comes_after_a_crash_counts(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    plan = servers.open_round(_scaffold(servers, 1))
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    agent._attendance.take_part(servers.offers[0], agent._site, agent._delivery)
    agent.close()  # as if the power had gone here
    assert _memory(config, plan) is FIRST
    assert run_agent(config) == EXIT_DONE
    after = _memory(config, plan)
    assert (after.round, after.model_out) == (1, plan.model)


class _Shelf:
    """A delivery that has one model, and counts how often it is asked for it."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.asked = raw, 0

    def fetch_model(self, digest: str, parameters: int, scratch: Path) -> bytes:
        self.asked += 1
        return self.raw


def test_the_first_model_is_fetched_once_a_job_and_hashed_each_time(tmp_path: Path) -> None:
    sparse = SparseTerms(kind="top", share=0.5)
    training = SPEC.training.model_copy(update={"sparse": sparse})
    spec = FEDERATION.job_spec(training=training)
    plan, shelf = FEDERATION.plan(spec), _Shelf(FEDERATION.initial_model())

    def first(delivery: _Shelf) -> CheckedModel | None:
        return Remembered(tmp_path, tmp_path / "scratch").first_model(plan, spec, delivery)  # type: ignore[arg-type]

    for _ in range(3):
        model = first(shelf)
        assert model is not None
        assert model.digest == spec.initial_model
    assert shelf.asked == 1, "also after a restart"
    (kept,) = tmp_path.rglob("first")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.write_bytes(b"\x00\x00\x80\x3f" * 3)
    with pytest.raises(Unprocessable, match=r"job\.initial_model: expected"):
        first(shelf)
    state = AlgorithmState(tmp_path)
    state.job_ended(plan.job_digest, TODAY)
    state.purge(TODAY + timedelta(days=DAYS_KEPT))
    assert not list(tmp_path.rglob("first")), "and goes with what the job's algorithm remembers"
    with pytest.raises(Unprocessable, match=r"job\.initial_model: expected"):
        first(_Shelf(b"\x00\x00\x80\x3f" * 3))
    assert not list(tmp_path.rglob("first")), "another model is not kept"
    plain = FEDERATION.plan(SPEC)
    assert Remembered(tmp_path, tmp_path).first_model(plain, SPEC, shelf) is None  # type: ignore[arg-type]
