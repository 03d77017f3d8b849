"""Whoever forges, moves or drops a decision about a job at a silo is named by the verifier."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sealsum_verify.verify import Report, verify_pack

from privacy.canonical import canonical_bytes
from privacy.errors import SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import PartyId, ServerId
from sealsum.evidence import build_pack
from tests.evidence_pack import AT, Records, edited, files_of, honest_records, resigned
from tests.evidence_schemes import job_terms
from tests.federation import Federation, demo_policy_text
from tests.handover import decision, handover, honest_handover

SILO, FILE = "silo-1", "silos/silo-1.json"
ADA, EVE = SigningKey.generate(), SigningKey.generate()


@pytest.fixture(scope="module")
def records() -> Records:
    return honest_records(1)


def pack_with(records: Records, *handovers: bytes, redact: tuple[str, ...] = ()) -> bytes:
    servers = {ServerId(PartyId(p)): c.served() for p, c in records.logs.items() if p != "aggregator"}
    books = {silo: ledger.lines() for silo, ledger in records.ledgers.items()}
    signer = records.identity("researcher")
    return build_pack(records.evidence(), servers, books, signer, AT, None, handovers, redact)


def judged(
    records: Records, *approvals: dict[str, Any], people: dict[str, SigningKey] | None = None
) -> Report:
    return verify_pack(pack_with(records, handover(records, SILO, list(approvals), people or {"ada": ADA})))


def test_honest_decisions_verify_and_are_counted(records: Records) -> None:
    report = verify_pack(
        pack_with(records, *(honest_handover(records, silo) for silo in ("silo-1", "silo-2")))
    )
    assert report.verified, report.fault
    assert report.summary["approved"] == {"silo-1": 1, "silo-2": 1}


def test_a_rule_of_the_silos_may_approve_with_the_silos_own_key(records: Records) -> None:
    own = records.federation.key(SILO)
    assert judged(records, decision(records, SILO, "statistics", "rule", own)).verified


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        (lambda r: decision(r, SILO, "ada", "data_steward", EVE), "not the silo's for ada"),
        (lambda r: decision(r, SILO, "eve", "dpo", EVE), "not the silo's for eve"),
        (lambda r: decision(r, SILO, "ada", "security", ADA), "ada as security"),
        (lambda r: decision(r, SILO, "any", "rule", EVE), "any as rule"),
        (lambda r: decision(r, SILO, "ada", "dpo", ADA, job_digest="0" * 64), "job_digest is not this job's"),
        (lambda r: decision(r, SILO, "ada", "dpo", ADA, silo="silo-2"), "silo is not this job's"),
        (lambda r: decision(r, SILO, "ada", "dpo", ADA, decision="reject"), "0 of the 1 approvals"),
        (lambda r: decision(r, SILO, "ada", "dpo", ADA, decision="maybe"), "neither approved nor rejected"),
        (
            lambda r: {**decision(r, SILO, "ada", "dpo", ADA), "signature": "0" * 128},
            "signature is not its author's",
        ),
    ],
)
def test_a_decision_that_nobody_entitled_made_is_named(
    records: Records, forged: Callable[[Records], dict[str, Any]], message: str
) -> None:
    fault = judged(records, forged(records)).fault
    assert fault is not None
    assert fault.entry.startswith(FILE)
    assert message in fault.sentence


def test_the_exporter_refuses_what_the_silo_did_not_sign(records: Records) -> None:
    said = decision(records, SILO, "ada", "dpo", ADA)
    with pytest.raises(SignatureRejected):
        pack_with(records, handover(records, SILO, [said], {"ada": ADA}, key=EVE))


def test_people_and_decisions_cannot_be_changed_by_whoever_signs_the_pack(records: Records) -> None:
    files = files_of(pack_with(records, honest_handover(records, SILO)))

    def drop(document: Any) -> None:
        document["body"]["approvals"] = []

    def promote(document: Any) -> None:
        document["body"]["people"]["ada"]["roles"] = ["security"]

    for edit in (drop, promote):
        report = verify_pack(resigned(edited(files, FILE, edit), records))
        assert report.fault is not None
        assert (report.fault.entry, report.passed) == (FILE, 12)


def test_a_silos_document_is_bound_to_the_ledger_in_the_pack(records: Records) -> None:
    """A silo that shows its people one ledger and the federation another has signed only one of them."""
    files = files_of(pack_with(records, honest_handover(records, SILO)))
    later = honest_records(1)
    document = json.loads(honest_handover(later, SILO))
    body = json.loads(document["body"])
    del body["ledger"]
    files[FILE] = canonical_bytes(document | {"body": body})
    fault = verify_pack(resigned(files, records)).fault
    assert fault is not None
    assert fault.entry == FILE


def test_what_was_withheld_is_reported_and_never_verified(records: Records) -> None:
    report = verify_pack(pack_with(records, honest_handover(records, SILO), redact=("silo:silo-1",)))
    assert report.verified, report.fault
    assert report.withheld == (
        "log/silo-1.jsonl: field by of 1 entries",
        f"{FILE}: the whole file",
    )
    assert report.summary["approved"] == {}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"entry": FILE, "field": "*"}], "cannot be withheld"),
        ([{"entry": "dp/ledger/silo-1.jsonl", "field": "*"}], "cannot be withheld"),
        ([{"entry": "log/aggregator.jsonl", "field": "reason"}], "redacted, listed otherwise"),
        ([{"entry": "silos/silo-9.json", "field": "*"}] * 2, "listed twice"),
    ],
)
def test_a_list_of_redactions_that_is_not_true_is_named(
    records: Records, rows: list[dict[str, Any]], message: str
) -> None:
    files = files_of(pack_with(records, honest_handover(records, SILO)))
    listed = [{"count": 1, "reason": "", "sha256": None} | row for row in rows]
    files["REDACTIONS.json"] = canonical_bytes({"redactions": listed})
    fault = verify_pack(resigned(files, records)).fault
    assert fault is not None
    assert fault.entry == "REDACTIONS.json"
    assert message in fault.sentence


def asking(approvals: str) -> Records:
    """One round under a threat model that asks for these approvals."""
    text = demo_policy_text()
    allowed = "{n: 1, roles: [data_steward, dpo], automatic: allowed}"
    assert allowed in text
    federation = Federation(policy_text=text.replace(allowed, approvals))
    records = Records(federation, federation.job_spec(**{"rounds": 1} | job_terms("additive")))
    records.add_round(1, job_state="finished")
    return records


def test_one_approval_does_not_pass_where_the_threat_model_asks_for_two() -> None:
    records = asking("{n: 2, roles: [data_steward, dpo], automatic: refused}")
    ada, eve = (
        decision(records, SILO, *said) for said in (("ada", "dpo", ADA), ("eve", "data_steward", EVE))
    )
    both = {"ada": ADA, "eve": EVE}
    assert judged(records, ada, eve, people=both).verified
    same_role = decision(records, SILO, "eve", "dpo", EVE)
    for too_few in ([ada], [ada, same_role]):
        fault = judged(records, *too_few, people=both).fault
        assert fault is not None
        assert "1 of the 2 approvals" in fault.sentence


def test_a_rule_does_not_pass_where_the_threat_model_wants_people() -> None:
    records = asking("{n: 1, roles: [data_steward, dpo], automatic: refused}")
    fault = judged(records, decision(records, SILO, "statistics", "rule", records.federation.key(SILO))).fault
    assert fault is not None
    assert "0 of the 1 approvals" in fault.sentence
