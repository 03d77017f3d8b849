"""How unequally silos are served is told from sums of their accuracies, which one patient hardly moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loader import load_threat_model
from policies.rules_plan import limit_findings
from privacy.errors import ConfigurationError
from privacy.query_skews import silo_accuracy_form
from privacy.query_terms import SiloAccuracyMetric
from sealsum.diagnosis.advice import served_sentences
from sealsum.queries.answer import read_answer
from sealsum.queries.file import EvaluationRequest
from sealsum.queries.skews import read_silo_accuracy
from sealsum.queries.table import answer_table
from silo_agent.data.records import Records
from silo_agent.models.layouts import model_terms
from silo_agent.queries.skews import silo_accuracy
from tests.federation import Federation
from tests.query_cohort import RELEASED, SMALL, answered, asked, opened

RELEASED_BY_SILO = RELEASED.replace("confusion]", "confusion, silo_accuracy]")
METRIC = SiloAccuracyMetric(least=300, threshold=0.8)
WEIGHTS = np.array([9, 0, 0, 0, 0, 0], dtype=np.float32)


@settings(max_examples=200, deadline=None)
@given(
    right=st.lists(st.booleans(), max_size=40),
    patient=st.lists(st.booleans(), min_size=1, max_size=3),
    least=st.integers(2, 50),
    threshold=st.floats(0.05, 0.95),
    width=st.floats(0.01, 1),
)
def test_one_patient_moves_it_by_at_most_the_bound(
    right: list[bool], patient: list[bool], least: int, threshold: float, width: float
) -> None:
    metric = SiloAccuracyMetric(least=least, threshold=threshold, width=width)
    before = silo_accuracy(metric, np.array(right, dtype=bool), np.ones(len(right)))
    shares = np.array([1.0] * len(right) + [1 / len(patient)] * len(patient))
    after = silo_accuracy(metric, np.array([*right, *patient], dtype=bool), shares)
    assert np.linalg.norm(after - before) <= silo_accuracy_form(least)[1] * (1 + 1e-9)


def _cohort() -> tuple[list[Records], list[float]]:
    random = np.random.default_rng(8)
    cohort, accuracies = [], []
    for silo, chance in enumerate((0.6, 0.75, 0.9, 0.95)):
        features = np.zeros((400 + 30 * silo, SMALL.width), dtype=np.float32)
        features[:, 0] = random.choice([-1, 1], len(features))
        told = features[:, 0] > 0
        labels = np.where(random.random(len(features)) < chance, told, ~told)
        cohort.append(Records(features, labels.astype(np.float32)))
        accuracies.append(float((labels == told).mean()))
    return cohort, accuracies


def test_variance_and_share_are_those_of_the_silos_accuracies() -> None:
    cohort, accuracies = _cohort()
    assert len(WEIGHTS) == model_terms("logistic", SMALL.width).parameters
    federation = Federation(policy_text=RELEASED_BY_SILO)
    request = EvaluationRequest(adapter="logistic", metrics=(METRIC,))
    job = asked(federation, request, weights=WEIGHTS, min_silos=4)
    updates = [answered(job, records, WEIGHTS) for records in cohort]
    answer = read_answer(job, opened(job, updates), 4)
    (read,) = answer["metrics"]
    for name, plain in (
        ("mean", np.mean(accuracies)),
        ("variance", np.var(accuracies)),
        ("under", 0.5),
    ):
        reach = read[name]["interval_95"][1] - read[name]["estimate"]
        assert abs(read[name]["estimate"] - plain) < 2.5 * reach
    assert read["mean"]["standard_error"] < 0.1
    assert "variance between silos" in str(list(answer_table(answer).columns[0].cells))


def test_it_is_exact_without_noise() -> None:
    cohort, accuracies = _cohort()
    terms = [
        silo_accuracy(METRIC, (one.features[:, 0] > 0) == (one.labels > 0), np.ones(len(one)))
        for one in cohort
    ]
    for term, plain in zip(terms, accuracies, strict=True):
        under = min(max(METRIC.threshold + METRIC.width / 2 - plain, 0), METRIC.width)
        assert term == pytest.approx([plain, plain**2, under])


def test_a_diagnosis_says_how_silos_are_served() -> None:
    read = read_silo_accuracy(METRIC, np.array([3.2, 2.6, 0.15]), 0.0, 4)
    told = " ".join(served_sentences({"metrics": [read]}))
    assert "mean accuracy of silos is 0.80, its variance between them 0.01" in told
    assert "0.38 of the silos are served worse than 0.8" in told
    with pytest.raises(ConfigurationError, match="silo_accuracy"):
        served_sentences({"metrics": []})


def test_accuracies_of_three_silos_are_refused() -> None:
    federation, policy = Federation(policy_text=RELEASED_BY_SILO), load_threat_model(RELEASED_BY_SILO)
    request = EvaluationRequest(adapter="logistic", metrics=(METRIC,))
    for least, refused in ((3, True), (4, False)):
        plan = federation.plan(asked(federation, request, weights=WEIGHTS, min_silos=least))
        rules = [finding.rule for finding in limit_findings(policy, plan, federation.charter)]
        assert ("skews_of_few_silos" in rules) == refused
