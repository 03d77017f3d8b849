"""The agent against servers on loopback: real HTTPS, real ledger, real training."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from privacy.chain import Head
from privacy.errors import PeerFault, SignatureRejected, Unprocessable
from privacy.keystore import load_identity
from privacy.model_terms import ModelTerms, TensorSpec
from privacy.plan import RoundPlan
from privacy.schema import ClassLabel
from privacy.secagg.additive import SeedSumHalf, combine, ring_to_bytes, unseal_seed
from privacy.secagg.encoding import decode
from privacy.update import model_digest
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import ShareManifest
from silo_agent.agent import EXIT_BUDGET, EXIT_DONE, Agent
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import read_settings
from tests.silo_yaml import registered
from tests.unit.silo_agent.loopback import SILO, Loopback, patients


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def _run(config: Path, until_idle: bool = True) -> int:
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    try:
        return agent.run(until_idle)
    finally:
        agent.close()


def _account(servers: Loopback, config: Path) -> Any:
    settings = read_settings(config)
    key = servers.federation.key(SILO).verify_key
    origin = ledger_origin("testfed", SILO, "cardio")  # type: ignore[arg-type]  # a literal id
    return read_account(ledger_path(settings.state_dir, "cardio"), origin, key)


def _events(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == name]


def _opened(servers: Loopback, plan: RoundPlan) -> Any:
    """What the two servers' shares of this one silo add up to, as floats."""
    base = f"/v1/rounds/{plan.context}"
    part = servers.uploads[f"{base}/parts/0"][0]
    seed_body = json.loads(servers.uploads[f"{base}/manifests#seed"][0])
    key = servers.federation.parties["server-1"].sealing
    assert key is not None
    sealed = base64.b64decode(seed_body["sealed_seed"])
    seed = unseal_seed(sealed, key, plan.context, plan.model, SILO, "server-1")  # type: ignore[arg-type]
    half = SeedSumHalf([(SILO, seed)], plan.context, plan.model, "server-1")  # type: ignore[list-item, arg-type]
    masks = ring_to_bytes(half.total(0, plan.vector_length))
    return decode(combine([part, masks], plan.vector_length), plan.vector)


def test_a_round_is_charged_trained_shared_and_settled(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "silo_agent")
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job(rounds=1)
    plan = servers.open_round(job)
    assert _run(config) == EXIT_DONE

    account, entries = _account(servers, config)
    assert [entry.kind for entry in entries] == ["open", "reserve", "begin", "settle"]
    assert account.jobs[job.digest].epsilon > 0
    assert not list((tmp_path / "state" / "outbox").iterdir()), "the round has ended: nothing is left to send"

    opened = _opened(servers, plan)
    assert opened[-1] == 1.0, "uniform weight"
    assert np.any(opened[:-1] != 0.0)

    base = f"/v1/rounds/{plan.context}"
    manifest = ShareManifest.model_validate_json(parse_envelope(servers.uploads[f"{base}/manifests"][0]).body)
    assert manifest.ledger_head in [Head(seq=entry.seq, hash=entry.hash) for entry in entries]
    [line] = _events(caplog, "round_result")
    assert line.__dict__["outcome"] == "opened"
    assert line.__dict__["overhead_ms"] > 0


def test_two_rounds_of_a_job_compose_in_the_ledger(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job(rounds=2)
    first = servers.open_round(job, 1)
    inner = servers.result_of

    def open_the_next(plan: RoundPlan) -> Any:
        if plan.round == 1:
            servers.open_round(job, 2)
        return inner(plan)

    servers.result_of = open_the_next
    assert _run(config) == EXIT_DONE
    account, entries = _account(servers, config)
    assert [entry.kind for entry in entries] == ["open", *["reserve", "begin", "settle"] * 2]
    assert account.jobs[job.digest].rounds == 2
    assert account.jobs[job.digest].settled
    assert first.context in account.begun


def test_a_job_beyond_the_budget_is_refused_in_public_words_and_ends_with_4(
    servers: Loopback, tmp_path: Path
) -> None:
    budget = {"epsilon": {"round": 0.01, "job": 0.01, "lifetime": 0.01}, "delta_max": 1e-4}
    cardio = registered(budget=budget)
    config = servers.silo_files(tmp_path, patients(80), datasets={"cardio": cardio})
    servers.open_round(servers.job())
    assert _run(config) == EXIT_BUDGET
    [refusal] = servers.refusals
    assert refusal.rule == "budget.epsilon.round"
    assert "0.01" not in refusal.model_dump_json(), "the caps are the silo's own"
    _, entries = _account(servers, config)
    assert [entry.kind for entry in entries] == ["open"], "nothing was charged"
    assert not servers.uploads


class Normalised:
    """A model that couples the records of a batch."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return terms.layout

    def build(self, terms: ModelTerms) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(terms.inputs), nn.Linear(terms.inputs, 1))


NORMALISED = ModelTerms(
    adapter="normalised",
    inputs=2,
    layout=tuple(
        TensorSpec(name=name, shape=shape)
        for name, shape in [("0.weight", (2,)), ("0.bias", (2,)), ("1.weight", (1, 2)), ("1.bias", (1,))]
    ),
)


def test_a_model_that_couples_records_is_refused_before_anything_is_charged(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = servers.federation.initial_model(NORMALISED.parameters)
    first = model_digest(NORMALISED, [raw])
    servers.models[first] = raw
    adapters = {"normalised": f"{__name__}:Normalised"}
    config = servers.silo_files(tmp_path, patients(80), model_adapters=adapters)
    servers.open_round(servers.job(model=NORMALISED, initial_model=first))
    servers.ended = True
    assert _run(config) == EXIT_DONE
    assert len(servers.refusals) == 1
    [line] = _events(caplog, "refused")
    assert "BatchNorm" in line.__dict__["reason"]
    _, entries = _account(servers, config)
    assert [entry.kind for entry in entries] == ["open"]


def test_a_model_that_does_not_fit_the_label_is_refused_before_anything_is_charged(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    data = servers.job().data.model_copy(
        update={"label": ClassLabel(column="num", categories=("0", "1", "2"))}
    )
    servers.open_round(servers.job(data=data))
    servers.ended = True
    assert _run(config) == EXIT_DONE
    assert len(servers.refusals) == 1
    [line] = _events(caplog, "refused")
    assert "expected 3 outputs a record" in line.__dict__["reason"]
    _, entries = _account(servers, config)
    assert [entry.kind for entry in entries] == ["open"]


def test_a_silo_with_too_few_records_does_not_tell_how_many(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = servers.silo_files(tmp_path, patients(37))
    servers.open_round(servers.job())
    servers.ended = True
    assert _run(config) == EXIT_DONE
    [refusal] = servers.refusals
    assert refusal.rule == "records.minimum"
    assert "37" not in refusal.model_dump_json()
    assert not servers.uploads


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"dataset": "radiology"}, "dataset.unknown"),
        ({"purpose": "marketing"}, "dataset.purpose"),
    ],
)
def test_a_job_for_what_the_owner_did_not_register_is_refused(
    servers: Loopback, tmp_path: Path, changes: dict[str, Any], rule: str
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(**changes))
    servers.ended = True
    _run(config)
    assert [refusal.rule for refusal in servers.refusals] == [rule]


def test_a_model_other_than_the_plans_is_refused_before_any_charge(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job()
    servers.models[job.initial_model] = np.ones(3, dtype="<f4").tobytes()
    servers.open_round(job)
    servers.ended = True
    _run(config)
    assert [refusal.rule for refusal in servers.refusals] == ["model.digest"]
    assert [entry.kind for entry in _account(servers, config)[1]] == ["open"]


def test_a_round_that_was_answered_never_comes_back_even_after_a_restart(
    servers: Loopback, tmp_path: Path
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job(rounds=2)
    servers.open_round(job, 2)
    assert _run(config) == EXIT_DONE
    servers.ended = True
    servers.open_round(job, 1, session="ff" * 16)
    _run(config)
    assert [refusal.rule for refusal in servers.refusals] == ["round.answered"]
    account, _ = _account(servers, config)
    assert (account.rounds, len(account.begun)) == (1, 1)


def test_pitfall_8_a_contribution_left_by_a_crash_is_resent_byte_for_byte(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    plan = servers.open_round(servers.job(rounds=1))
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    attended = agent._attendance.take_part(servers.offers[0], agent._site, agent._delivery)
    agent.close()  # as if the power had gone here
    stored = dict(attended.stored.parts())[0]
    assert not servers.uploads

    assert _run(config) == EXIT_DONE
    base = f"/v1/rounds/{plan.context}"
    assert servers.uploads[f"{base}/parts/0"] == [stored]
    account, _ = _account(servers, config)
    assert (account.rounds, len(account.begun)) == (1, 1)


def _lies(servers: Loopback) -> dict[str, Callable[[RoundPlan], Any]]:
    honest = servers.opened
    return {
        "model_in": lambda plan: honest(plan).model_copy(update={"model_in": "0" * 64}),
        "survivors": lambda plan: honest(plan).model_copy(update={"survivors": ("stranger",)}),
        "at least": lambda plan: honest(plan).model_copy(update={"survivors": plan.silos[:1]}),
        "exactly if": lambda plan: honest(plan).model_copy(update={"openings": 0}),
    }


@pytest.mark.parametrize("lie", ["model_in", "survivors", "at least", "exactly if"])
def test_a_result_that_contradicts_the_plan_stops_the_agent(
    servers: Loopback, tmp_path: Path, lie: str
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))
    servers.result_of = _lies(servers)[lie]
    with pytest.raises(Unprocessable, match=lie):
        _run(config)


def test_a_result_signed_by_another_member_is_not_believed(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))
    inner = servers.end_round
    servers.end_round = lambda context, result=None, sender="": inner(context, result, "silo-2")  # type: ignore[method-assign]
    with pytest.raises(SignatureRejected):
        _run(config)


def test_a_charter_of_other_officers_is_refused(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    stranger = Loopback(tmp_path / "stranger")
    try:
        servers.federation.endorsed_charter = stranger.federation.endorsed_charter
        with pytest.raises(PeerFault):
            _run(config)
    finally:
        stranger.close()


def test_the_log_holds_no_count_of_records(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = servers.silo_files(tmp_path, patients(83))
    servers.open_round(servers.job(rounds=1))
    _run(config)
    fields = [
        value
        for record in caplog.records
        for name, value in vars(record).items()
        if name not in vars(logging.makeLogRecord({}))
    ]
    assert 83 not in fields
    assert "83" not in fields
