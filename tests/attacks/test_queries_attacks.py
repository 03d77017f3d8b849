"""Ways to get more out of a query than was agreed: refused, charged, or without effect outside the sum."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from policies.findings import PolicyRefusal
from policies.gates import AdmittedPlan, admit_plan
from policies.loader import load_threat_model
from privacy.errors import SealsumError, Unprocessable
from privacy.keystore import load_identity
from privacy.plan import JobSpec, RoundPlan
from privacy.query_terms import (
    AucMetric,
    CountStatistic,
    HistogramStatistic,
    LossMetric,
    StatisticsTerms,
    VarianceStatistic,
)
from privacy.update import model_bytes, model_digest
from sealsum.job_judgement import job_findings
from sealsum.queries.file import EvaluationRequest, NoiseRequest, no_answers
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.checked_model import check_evaluated
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.own_policy import load_own_policy
from silo_agent.participation import open_offer
from silo_agent.settings import read_settings
from tests.federation import Federation, demo_policy_text
from tests.query_cohort import ALLOWED, RELEASED, SMALL, asked, metrics_of
from tests.unit.silo_agent.loopback import SILO, Loopback, patients

FEDERATION = Federation(policy_text=RELEASED)
STATISTICS = StatisticsTerms(
    statistics=(CountStatistic(), VarianceStatistic(column="age"), HistogramStatistic(column="sex"))
)
EVALUATION = EvaluationRequest(adapter="logistic", metrics=(LossMetric(), AucMetric()))
WEIGHTS = initial_vector(model_terms("logistic", SMALL.width), 0)


def _admit(
    job: JobSpec,
    federation: Federation = FEDERATION,
    own: str | None = None,
    plan: RoundPlan | None = None,
) -> AdmittedPlan:
    """Both threat models' judgement, as a silo asks for it."""
    offer = federation.offer(plan or federation.plan(job), federation.sign_job(job))
    texts = [federation.policy_text, own or federation.policy_text]
    return admit_plan(
        [load_threat_model(text) for text in texts],
        *open_offer(offer, federation.charter),
        federation.charter,
    )


@pytest.fixture
def questions() -> dict[str, JobSpec]:
    """One honest job of each kind."""
    return {
        "dp_statistics": asked(FEDERATION, STATISTICS),
        "dp_evaluation": asked(FEDERATION, EVALUATION, weights=WEIGHTS),
    }


def test_honest_queries_are_admitted_by_both_sides(questions: dict[str, JobSpec]) -> None:
    for job in questions.values():
        assert _admit(job).tolerated == ()
        assert job_findings(load_threat_model(RELEASED), job, FEDERATION.charter) == []


@pytest.mark.parametrize("kind", ["dp_statistics", "dp_evaluation"])
def test_a_query_that_is_not_listed_is_refused_on_both_sides(kind: str) -> None:
    without = RELEASED.replace(f", {kind}", "")
    assert without != RELEASED
    request: Any = STATISTICS if kind == "dp_statistics" else EVALUATION
    weights = None if kind == "dp_statistics" else WEIGHTS
    with pytest.raises(PolicyRefusal, match=kind):
        _admit(asked(FEDERATION, request, weights=weights), own=without)
    federation = Federation(policy_text=without)
    with pytest.raises(PolicyRefusal, match=kind):
        _admit(asked(federation, request, weights=weights), federation)


@pytest.mark.parametrize("listed", ["names: [], dp: withheld", "names: [loss], dp: charged"])
def test_a_metric_that_is_not_released_by_name_is_refused_on_both_sides(listed: str) -> None:
    stricter = ALLOWED.replace("names: [], dp: withheld", listed)
    job = asked(FEDERATION, EVALUATION, weights=WEIGHTS)
    with pytest.raises(PolicyRefusal, match="auc") as refused:
        _admit(job, own=stricter)
    assert {finding.rule for finding in refused.value.findings} == {"metric_withheld"}
    federation = Federation(policy_text=stricter)
    with pytest.raises(PolicyRefusal, match="metric"):
        _admit(asked(federation, EVALUATION, weights=WEIGHTS), federation)
    _admit(asked(federation, STATISTICS), federation)


def test_an_evaluated_architecture_has_to_be_listed_like_one_that_is_trained() -> None:
    """A crafted model is run on records in an evaluation too."""
    job = asked(FEDERATION, EVALUATION, weights=WEIGHTS)
    architecture = metrics_of(job.query).model.architecture
    other = RELEASED.replace("architectures: any", f"architectures: ['sha256:{'0' * 64}']")
    with pytest.raises(PolicyRefusal, match=architecture):
        _admit(job, own=other)
    _admit(job, own=RELEASED.replace("architectures: any", f"architectures: ['sha256:{architecture}']"))
    _admit(asked(FEDERATION, STATISTICS), own=other)


def test_a_plan_with_another_query_than_the_signed_one_is_refused(questions: dict[str, JobSpec]) -> None:
    job = questions["dp_statistics"]
    other = StatisticsTerms(statistics=(CountStatistic(), VarianceStatistic(column="pressure")))
    for query in (other, None):
        with pytest.raises(PolicyRefusal, match="altered_query"):
            _admit(job, plan=FEDERATION.plan(job, query=query))


def test_a_vector_that_is_not_the_querys_is_refused(questions: dict[str, JobSpec]) -> None:
    """Fewer answers in the layout would be summed under another meaning than readers give them."""
    job = questions["dp_statistics"]
    layouts = (
        job.model.layout[::-1],
        job.model.layout[:-1],
        (job.model.layout[0].model_copy(update={"shape": (3,)}), *job.model.layout[1:]),
    )
    for layout in layouts:
        forged = job.model_copy(update={"model": job.model.model_copy(update={"layout": layout})})
        with pytest.raises(PolicyRefusal, match="query_answers"):
            _admit(forged)
    renamed = questions["dp_evaluation"].model
    with pytest.raises(PolicyRefusal, match="query_answers"):
        _admit(job.model_copy(update={"model": renamed}))


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 2},
        {"query": None},
        {"training": {"local_steps": 2}},
        {"training": {"weights": "examples"}},
        {"training": {"learning_rate": 2.0}},
        {"training": {"algorithm": "dp_fedsgd"}},
        {"training": {"algorithm": "dp_evaluation"}},
        {"dp": {"sample_rate": 0.5}},
        {"dp": {"normaliser": 7.0}},
        {"dp": None},
    ],
    ids=str,
)
def test_a_query_is_one_full_batch_or_no_job(changes: dict[str, Any], questions: dict[str, JobSpec]) -> None:
    tree = questions["dp_statistics"].model_dump(mode="json")
    for field, value in changes.items():
        tree[field] = {**tree[field], **value} if isinstance(value, dict) else value
    with pytest.raises(ValidationError, match=r"query|dp"):
        JobSpec.model_validate(tree)


def test_a_training_job_cannot_carry_a_query(questions: dict[str, JobSpec]) -> None:
    with pytest.raises(ValidationError, match="query"):
        FEDERATION.job_spec(query=questions["dp_statistics"].query)


def test_another_model_than_the_evaluated_one_is_refused(questions: dict[str, JobSpec]) -> None:
    query = metrics_of(questions["dp_evaluation"].query)
    assert check_evaluated(query, model_bytes(WEIGHTS)).digest == query.weights
    for other in (WEIGHTS + np.float32(1e-3), np.append(WEIGHTS, np.float32(0))):
        with pytest.raises(Unprocessable, match=r"query\.weights"):
            check_evaluated(query, model_bytes(other))


def test_too_little_noise_is_refused_by_the_caps_of_a_round() -> None:
    loose = NoiseRequest(unit="patient", noise_multiplier=1.0, delta=1e-5)
    with pytest.raises(PolicyRefusal, match="epsilon_round"):
        _admit(asked(FEDERATION, STATISTICS, dp=loose))
    shared = NoiseRequest(
        unit="patient", noise_multiplier=6.0, delta=1e-5, model="distributed", noise_shares=3
    )
    with pytest.raises(PolicyRefusal, match="noise_shares"):
        _admit(asked(FEDERATION, STATISTICS, dp=shared))


def test_metrics_cannot_be_released_uncharged_or_under_names_nobody_knows() -> None:
    for line in (
        "names: [loss], dp: none",
        "names: [loss], dp: withheld",
        "names: [], dp: charged",
        "names: [f1], dp: charged",
    ):
        text = demo_policy_text().replace("names: [], dp: withheld", line)
        with pytest.raises(SealsumError, match="metrics"):
            load_threat_model(text)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path, policy_text=RELEASED)
    yield loopback
    loopback.close()


def _config(servers: Loopback, directory: Path, count: int) -> Path:
    directory.mkdir()
    (directory / "own.yaml").write_text(RELEASED)
    return servers.silo_files(directory, patients(count), threat_model="./own.yaml")


def _run(config: Path) -> None:
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    try:
        assert agent.run(True) == EXIT_DONE
    finally:
        agent.close()


def _question(servers: Loopback, name: str, evaluate: bool = False) -> JobSpec:
    """A query over ``loopback.patients``, everything it needs published."""
    schema = servers.federation.job_spec().data
    terms = model_terms("logistic", schema.width)
    weights = initial_vector(terms, 1) if evaluate else None
    statistics = StatisticsTerms(
        statistics=(CountStatistic(), HistogramStatistic(column="age", cuts=(30, 60)))
    )
    request: Any = EVALUATION if evaluate else statistics
    job = asked(servers.federation, request, schema, weights, job=name)
    servers.models[job.initial_model] = model_bytes(no_answers(job.model))
    if weights is not None:
        servers.models[model_digest(terms, [model_bytes(weights)])] = model_bytes(weights)
    return job


def _ask(servers: Loopback, config: Path, job: JobSpec) -> RoundPlan:
    servers.ended = False
    plan = servers.open_round(job)
    _run(config)
    return plan


@pytest.mark.parametrize("evaluate", [False, True], ids=["statistics", "evaluation"])
def test_the_same_query_twice_is_charged_twice(servers: Loopback, tmp_path: Path, evaluate: bool) -> None:
    """Noise of two answers averages out: what is asked again costs again."""
    config = _config(servers, tmp_path / "silo", 80)
    epsilons = []
    for name in ("first", "second"):
        _ask(servers, config, _question(servers, name, evaluate))
        settings = read_settings(config)
        origin = ledger_origin("testfed", SILO, "cardio")  # type: ignore[arg-type]  # a literal id
        account, _ = read_account(
            ledger_path(settings.state_dir, "cardio"), origin, servers.federation.key(SILO).verify_key
        )
        epsilons.append(sum(charge.epsilon for charge in account.jobs.values()))
    assert epsilons[0] == pytest.approx(0.9, rel=1e-3)
    assert epsilons[1] == pytest.approx(2 * epsilons[0], rel=1e-9)


def test_nothing_but_the_masked_sum_depends_on_how_many_patients_there_are(
    servers: Loopback, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sizes of uploads, and lines of the log with their fields, are the same for 60 patients and 1,000."""
    caplog.set_level(logging.DEBUG)
    seen = []
    servers.heads = lambda: ()  # type: ignore[method-assign]  # one identity over two state directories
    for count in (60, 1000):
        caplog.clear()
        servers.uploads.clear()  # the same silo, begun anew: nobody has seen a head of its ledger
        config = _config(servers, tmp_path / f"silo-{count}", count)
        plan = _ask(servers, config, _question(servers, f"ask-{len(seen)}"))
        sizes = {
            path.partition(plan.context)[2]: len(raw[0])
            for path, raw in servers.uploads.items()
            if plan.context in path and "parts" in path
        }
        lines = [record for record in caplog.records if record.name.startswith("silo_agent")]
        said = [(line.getMessage(), sorted(set(line.__dict__))) for line in lines]
        seen.append((sizes, said))
        values = [value for line in lines for value in line.__dict__.values() if isinstance(value, int)]
        assert count not in [value for value in values if value >= 1000]
    assert seen[0] == seen[1]
    assert seen[0][0]
