"""Claims that are false of the job, and honest ones that an auditor must not refuse."""

from __future__ import annotations

from typing import Any

import pytest
from sealsum_verify.claim import check_claim
from sealsum_verify.encoding import Fault
from sealsum_verify.messages import Roster
from sealsum_verify.offers import Job
from sealsum_verify.verify import verify_pack

from privacy.canonical import canonical_bytes
from privacy.plan import JobSpec
from tests.attacks.test_fedsgd_attacks import EVIDENCE, SHARED, STEP, audited
from tests.evidence_pack import edited, files_of, honest_records, resigned
from tests.unit.policies.policies_terms import altered

SEVERAL = EVIDENCE | {"dp": SHARED.model_copy(update={"records_per_unit": 3})}


def test_an_honest_pack_of_patients_with_several_records_verifies() -> None:
    report = verify_pack(honest_records(1, **SEVERAL).pack())
    assert report.verified, report.fault


EDITS: dict[str, dict[str, Any]] = {
    "fewer records a patient": {"records_per_unit": 1},
    "more records a patient": {"records_per_unit": 1000},
    "local noise where it is shared": {"model": {"kind": "local", "trust": "nobody"}},
    "no word about whose noise": {"model": None},
}


@pytest.mark.parametrize("attack", EDITS)
def test_a_claim_that_states(attack: str) -> None:
    records = honest_records(1, **SEVERAL)
    files = edited(files_of(records.pack()), "dp/claim.json", lambda claim: claim | EDITS[attack])
    verdict = audited(resigned(files, records))
    assert (verdict.passed, verdict.fault.startswith("dp/claim.json")) == (11, True)


NO_REPLAY = {"dp/accountant-replay.json": canonical_bytes({"delta": None, "silos": {}})}
"""What nobody's reservations are replayed as."""


def _fault_of(job: JobSpec) -> str:
    """Of a claim about a job that the platform itself would not have parsed."""
    with pytest.raises(ValueError, match="expected"):
        JobSpec.model_validate(job.model_dump())
    roster = Roster("", {"policy_text": ""}, {})
    with pytest.raises(Fault) as fault:
        check_claim({}, NO_REPLAY, Job({}, job.model_dump(mode="json"), job.digest), {}, [], roster)
    return str(fault.value)


def test_no_claim_is_made_of_a_query_that_is_charged_as_if_it_were_sampled() -> None:
    records = honest_records(1, **EVIDENCE)
    query = {"kind": "statistics", "statistics": [{"kind": "count", "share": "1.0"}]}
    job = altered(records.job, training=STEP.model_copy(update={"algorithm": "dp_statistics"}))
    terms = job.model_dump(mode="json") | {"query": query}
    with pytest.raises(Fault, match="charged for all units"):
        check_claim({}, NO_REPLAY, Job({}, terms, job.digest), {}, [], Roster("", {"policy_text": ""}, {}))


def test_no_claim_is_made_of_several_steps_of_one_mechanism() -> None:
    several = STEP.model_copy(update={"local_steps": 2})
    assert "one step" in _fault_of(altered(honest_records(1, **EVIDENCE).job, training=several))


def test_no_claim_is_made_of_metrics_that_local_steps_would_release() -> None:
    records = honest_records(1, **EVIDENCE)
    local = SHARED.model_copy(update={"model": "local", "noise_shares": None})
    job = altered(records.job, training=STEP.model_copy(update={"algorithm": "dp_fedavg"}), dp=local)
    terms = job.model_dump(mode="json")
    terms["dp"]["metrics"] = {"names": ["accuracy"], "noise_multiplier": "8.0", "loss_cap": None}
    with pytest.raises(Fault, match="releases no metrics"):
        check_claim({}, NO_REPLAY, Job({}, terms, job.digest), {}, [], Roster("", {"policy_text": ""}, {}))
