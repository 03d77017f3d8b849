"""A whole agent before an aggregator that does not wait for approval: no round begins, nothing is charged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from privacy.identity import SigningKey
from privacy.keystore import load_identity
from privacy.plan import RoundPlan
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.approvals.registry import Registry
from silo_agent.ledger.books import ledger_path
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import read_settings
from tests.unit.silo_agent.loopback import Loopback, patients, run_agent

ADA = SigningKey.generate()
PEOPLE: dict[str, Any] = {"ada": {"roles": ["dpo"], "verify_key": ADA.verify_key}}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def decide(config: Path, decision: str) -> None:
    """Ada decides in a process of her own, as far as the agent can tell."""
    settings = read_settings(config)
    registry, now = Registry(settings, load_identity(settings.state_dir)), datetime.now(UTC)
    registry.decide(registry.one("heart", now), decision, "ada", ADA, now, 30)  # type: ignore[arg-type]  # a word


def kinds(config: Path) -> list[str]:
    lines = ledger_path(read_settings(config).state_dir, "cardio").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]


def test_a_round_of_a_job_that_nobody_approved_is_refused_before_anything_is_charged_or_fetched(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80), approval_rules={}, people=PEOPLE)
    plan = servers.open_round(servers.job())
    servers.models.clear()
    servers.end_round(plan.context, servers.opened(plan, "failed"))
    servers.ended = True
    assert run_agent(config) == EXIT_DONE
    [refusal] = servers.refusals
    assert refusal.rule == "approval.missing"
    assert "ada" not in refusal.model_dump_json(), "who decides here is nobody's business"
    assert kinds(config) == ["open"]
    assert not servers.uploads


def test_a_rejection_between_two_rounds_keeps_the_silo_out_of_the_second(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80), people=PEOPLE)
    job = servers.job(rounds=2)
    servers.open_round(job, 1)

    def reject_and_go_on(plan: RoundPlan) -> Any:
        decide(config, "reject")
        second = servers.open_round(job, 2)
        servers.end_round(second.context, servers.opened(second))
        servers.ended = True
        return servers.opened(plan)

    servers.result_of = reject_and_go_on
    assert run_agent(config) == EXIT_DONE
    assert [refusal.rule for refusal in servers.refusals] == ["approval.rejected"]
    assert kinds(config).count("begin") == 1


def test_a_person_is_asked_before_the_first_round_and_the_aggregator_hears_her_answer_but_not_her_name(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80), approval_rules={}, people=PEOPLE)
    job = servers.job(rounds=1)
    servers.queued.append(servers.federation.sign_job(job))
    agent = threading.Thread(target=run_agent, args=(config,))
    agent.start()
    try:
        servers.wait_until(lambda: [one.decision for one in servers.readiness] == ["waiting"])
        decide(config, "approve")
        servers.wait_until(lambda: [one.decision for one in servers.readiness] == ["waiting", "approved"])
        servers.open_round(job)
    finally:
        agent.join(60)
    assert not agent.is_alive()
    assert not servers.refusals
    assert "begin" in kinds(config)
    assert "ada" not in "".join(one.model_dump_json() for one in servers.readiness)


def test_a_job_that_would_be_refused_is_answered_so_before_any_round(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.queued.append(servers.federation.sign_job(servers.job(purpose="marketing")))
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    thread = threading.Thread(target=agent.run, args=(False,))
    thread.start()
    try:
        servers.wait_until(lambda: bool(servers.readiness))
    finally:
        agent._stopping.set()
        thread.join(60)
        agent.close()
    assert [(one.decision, one.rule) for one in servers.readiness] == [("rejected", "dataset.purpose")]


def test_a_job_that_its_researcher_did_not_sign_is_never_shown(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job(rounds=1)
    genuine = servers.federation.sign_job(job)
    other = servers.job(rounds=1, min_silos=4)
    forged = genuine.model_copy(update={"body": servers.federation.sign_job(other).body})
    servers.queued.append(forged)
    servers.open_round(job)
    assert run_agent(config) == EXIT_DONE
    stored = list((tmp_path / "state" / "jobs").rglob("*.json"))
    assert [path.stem for path in stored] == [job.digest]
