"""A job that the federation's threat model refuses is refused before anything is sent."""

from __future__ import annotations

import pytest

from policies.findings import PolicyRefusal
from sealsum.demo.job import demo_terms
from sealsum.job_judgement import refuse_if_charter_does
from tests.federation import Federation


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
