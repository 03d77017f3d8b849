"""A job that the federation's threat model refuses is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from policies.findings import PolicyRefusal
from policies.loader import load_threat_model
from policies.planning import SESSION_BYTES, plan_round
from privacy.errors import Unprocessable
from privacy.plan import SchemeName, ValidityClaim, VectorTerms
from sealsum.demo.job import demo_terms
from sealsum.job_judgement import refuse_if_charter_does
from tests.federation import Federation, demo_policy_text


def test_a_job_within_the_threat_model_may_be_sent() -> None:
    federation = Federation()
    job = demo_terms(rounds=20, target=3.0, seed=0).job(federation.name, federation.charter.digest)
    refuse_if_charter_does(job, federation.charter)


def test_a_job_that_costs_too_much_is_refused_with_every_finding() -> None:
    federation = Federation()
    job = demo_terms(rounds=20, target=50.0, seed=0).job(federation.name, federation.charter.digest)
    with pytest.raises(PolicyRefusal, match="judged before anything was sent") as refusal:
        refuse_if_charter_does(job, federation.charter)
    assert {finding.rule for finding in refusal.value.findings} == {"epsilon_round", "epsilon_job"}
    assert refusal.value.exit_code == 3


@pytest.mark.parametrize("scheme", ["pairwise", "bfv", "ckks"])
def test_a_job_by_each_scheme_is_judged_by_that_schemes_threat_model(scheme: SchemeName) -> None:
    federation = Federation(servers=0, policy_text=demo_policy_text(scheme))
    job = demo_terms(rounds=20, target=3.0, seed=0, scheme=scheme).job(
        federation.name, federation.charter.digest
    )
    refuse_if_charter_does(job, federation.charter)


@pytest.mark.parametrize("scheme", ["pairwise", "bfv", "ckks"])
def test_another_scheme_than_the_threat_models_is_refused_before_it_is_sent(scheme: SchemeName) -> None:
    federation = Federation()
    job = demo_terms(rounds=20, target=3.0, seed=0, scheme=scheme).job(
        federation.name, federation.charter.digest
    )
    with pytest.raises(PolicyRefusal, match="scheme: the plan sums updates by another scheme"):
        refuse_if_charter_does(job, federation.charter)


def test_a_job_by_additive_where_there_are_no_share_servers_is_told_which_scheme_to_write() -> None:
    federation = Federation(servers=0, policy_text=demo_policy_text("pairwise"))
    with pytest.raises(PolicyRefusal, match="write scheme: pairwise") as refused:
        refuse_if_charter_does(federation.job_spec(), federation.charter)
    assert [finding.rule for finding in refused.value.findings] == ["scheme"]


@pytest.mark.parametrize(
    ("scheme", "changes", "why"),
    [
        ("pairwise", {"validity": ValidityClaim(norm_bound=1.0)}, "validity: expected it with additive only"),
        ("ckks", {"vector": VectorTerms(coordinate_bound=4.0, scale_bits=24)}, "exceeds the largest sum"),
    ],
)
def test_a_job_that_no_round_can_have_is_refused_with_the_reason(
    scheme: str, changes: dict[str, Any], why: str
) -> None:
    """It is a finding here, and fails the job at an aggregator; it must not end the aggregator's process."""
    federation = Federation(servers=0, policy_text=demo_policy_text(scheme))
    job = federation.job_spec(scheme=scheme, **changes)
    with pytest.raises(PolicyRefusal, match="job_not_plannable") as refused:
        refuse_if_charter_does(job, federation.charter)
    assert why in str(refused.value)
    with pytest.raises(Unprocessable, match=why[:20]):
        plan_round(
            job,
            federation.charter,
            load_threat_model(federation.policy_text),
            silos=federation.charter.silos,
            number=1,
            model=job.initial_model,
            session=bytes(SESSION_BYTES),
        )
