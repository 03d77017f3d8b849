"""The verifier counts anew how many coordinates a round may sum; a plan that says otherwise fails by name."""

from __future__ import annotations

import pytest
from sealsum_verify.verify import verify_pack

from privacy.plan import Phase, TrainingTerms
from privacy.sent_terms import SparseTerms
from tests.evidence_pack import honest_records, started_records
from tests.evidence_schemes import PROTOCOLS, Protocol

CARRIED = [protocol for protocol in PROTOCOLS if protocol != "validity"]
TRAINING = TrainingTerms(
    algorithm="dp_fedavg",
    local_steps=2,
    learning_rate=0.5,
    server_learning_rate=1.0,
    sparse=SparseTerms(kind="random", share=0.6),
    phases=(Phase(until=1, layers=("weight",)),),
)


@pytest.mark.parametrize("protocol", CARRIED)
def test_a_pack_whose_rounds_sum_a_part_of_the_model_passes_under_each_scheme(protocol: Protocol) -> None:
    records = honest_records(protocol=protocol, training=TRAINING)
    assert [records.plan(number).sent for number in (1, 2)] == [2, 2]
    report = verify_pack(records.pack())
    assert report.verified, report.fault


@pytest.mark.parametrize("sent", [1, 3, None])
def test_a_round_that_summed_another_part_than_the_job_says_is_named(sent: int | None) -> None:
    records = started_records(training=TRAINING)
    records.add_round(1)
    records.add_round(2, job_state="finished", sent=sent)
    report = verify_pack(records.pack())
    assert not report.verified
    assert "plan.sent is not what charter and job say" in str(report.fault)
