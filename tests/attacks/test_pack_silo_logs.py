"""A silo's own log in a pack: rolled back, short of a decision, swapped, or at odds with its ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sealsum_verify.verify import Report, verify_pack

from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.transparency.checkpoint import Checkpoint, cosign, sign_checkpoint, witness_name
from tests.attacks.test_pack_decisions import pack_with
from tests.evidence_pack import Records, edited, files_of, honest_records, resigned, started_records
from tests.federation import demo_policy_text
from tests.handover import decision, handover, own_log
from tests.log_book import LogBook

SILO, FILE = "silo-1", "silos/silo-1.json"
ADA = SigningKey.generate()


@pytest.fixture(scope="module")
def records() -> Records:
    return honest_records(1)


def yes(records: Records, **changes: Any) -> dict[str, Any]:
    return decision(records, SILO, "ada", "dpo", ADA, **changes)


def judged(records: Records, log: LogBook | None = None, **changes: Any) -> Report:
    return verify_pack(
        pack_with(records, handover(records, SILO, [yes(records)], {"ada": ADA}, log=log, **changes))
    )


def fault_of(report: Report) -> tuple[str, str]:
    assert report.fault is not None
    return report.fault.entry, report.fault.sentence


def shown_records(log: LogBook, records: Records | None = None) -> Records:
    """A job during which the aggregator was shown ``log`` of the silo."""
    records = records or started_records(rounds=2)
    records.add_round(1)
    head = log.head
    records.logs["aggregator"].add("silo_log_seen", silo=SILO, size=head.size, root=head.root)
    records.add_round(2, job_state="finished")
    return records


def test_a_log_that_continues_what_the_aggregator_was_shown_verifies() -> None:
    log = own_log(records := started_records(rounds=2), SILO)
    shown_records(log, records)
    for entry in own_log(records, SILO, [yes(records)]).entries[1:]:
        log.add(entry.kind, **entry.body)
    report = judged(records, log)
    assert report.verified, report.fault
    assert "log/silo-1.checkpoint" in files_of(pack_with(records, handover(records, SILO, [], {})))


@pytest.mark.parametrize("cut", [True, False])
def test_a_log_that_was_cut_or_rewritten_since_it_was_shown_is_named(cut: bool) -> None:
    """The silo signs a new checkpoint over it: only the aggregator's log tells."""
    later = started_records(rounds=2)
    log = own_log(later, SILO)
    log.add("round_refused", context="ab" * 32, rule="budget.job")
    shown_records(log, later)
    handed = log.beginning(1)
    if not cut:
        handed.add("sink_failed", sink="a")
    entry, sentence = fault_of(judged(later, handed))
    assert entry == "log/silo-1.jsonl"
    assert "does not continue the head in log/aggregator.jsonl entry" in sentence


def test_a_rejection_that_the_log_names_cannot_be_left_out(records: Records) -> None:
    both = [yes(records), yes(records, decision="reject", at="2026-01-02T03:04:09Z")]
    log = own_log(records, SILO, both)
    entry, sentence = fault_of(judged(records, log))
    assert (entry, "it lacks the decision of log/silo-1.jsonl entry" in sentence) == (FILE, True)


def test_a_reservation_that_only_the_log_names_is_missed_in_the_ledger(records: Records) -> None:
    log = own_log(records, SILO, [yes(records)])
    log.add(
        "reserved",
        job_digest=records.job.digest,
        first_round=2,
        last_round=2,
        ledger_head={"seq": 9, "hash": "ab" * 32},
    )
    entry, sentence = fault_of(judged(records, log))
    assert (entry, "it lacks the reservation" in sentence) == ("dp/ledger/silo-1.jsonl", True)


def test_the_exporter_cannot_put_an_older_log_beside_the_document(records: Records) -> None:
    files = files_of(pack_with(records, handover(records, SILO, [yes(records)], {"ada": ADA})))
    older = own_log(records, SILO).served().files(PartyId(SILO))
    assert fault_of(verify_pack(resigned({**files, **older}, records)))[0] == FILE
    left = {name: raw for name, raw in files.items() if not name.startswith("log/silo-1.")}
    assert fault_of(verify_pack(resigned(left, records))) == (FILE, "log/silo-1.jsonl is missing")


def test_a_silo_cannot_break_a_pack_by_what_only_servers_log(records: Records) -> None:
    log = own_log(records, SILO, [yes(records)])
    log.add("update_accepted", context=records.plan(1).context, silo="silo-9")
    log.add("round_admitted", context="ab" * 32, job=records.job.job)
    assert judged(records, log).verified


def test_the_silos_own_threat_model_may_ask_for_more_people(records: Records) -> None:
    text = demo_policy_text()
    (asked,) = (line for line in text.splitlines() if "approvals:" in line)
    stricter = text.replace(asked, "    approvals: {n: 2, roles: [data_steward, dpo], automatic: refused}")
    entry, sentence = fault_of(judged(records, threat_model={"text": stricter, "parents": []}))
    assert (entry, "1 of the 2 approvals" in sentence) == (f"{FILE} at rounds/0001.json", True)
    others = text.replace(asked, "    approvals: {n: 1, roles: [security], automatic: refused}")
    assert "cannot be had" in fault_of(judged(records, threat_model={"text": others, "parents": []}))[1]
    odd = text.replace(asked, "    approvals: &anchor {n: 1}")
    entry, sentence = fault_of(judged(records, threat_model={"text": odd, "parents": []}))
    assert (entry, "does not read" in sentence) == (f"{FILE} threat_model", True)


def test_the_card_says_what_the_silo_registered_and_nothing_else(records: Records) -> None:
    files = files_of(pack_with(records, handover(records, SILO, [yes(records)], {"ada": ADA})))
    card = json.loads(files["data/card.json"])
    assert card["registered"] == {SILO: {"purposes": ["test"], "legal_basis": "consent", "min_records": 50}}

    def promise(document: Any) -> None:
        document["registered"][SILO]["legal_basis"] = "public task"

    report = verify_pack(resigned(edited(files, "data/card.json", promise), records))
    assert fault_of(report)[0] == "data/card.json"


def test_a_withheld_silo_leaves_no_name_in_its_log(records: Records) -> None:
    given = handover(records, SILO, [yes(records)], {"ada": ADA})
    files = files_of(pack := pack_with(records, given, redact=(f"silo:{SILO}",)))
    assert verify_pack(pack).verified
    assert b'"ada"' not in files["log/silo-1.jsonl"]
    assert json.loads(files["data/card.json"])["registered"] == {}


# --- what servers have cosigned of it ---


def cosigned(records: Records, note: Checkpoint, by: str) -> str:
    """The note with one more signature, under the name of a witness."""
    name = witness_name(records.federation.name, PartyId(by))
    line = cosign(note, name, records.federation.key(by), 1_767_323_045)
    return note.with_cosignatures([line]).note()


def with_witnessed(records: Records, log: LogBook, note: str) -> Report:
    packed = pack_with(records, handover(records, SILO, [yes(records)], {"ada": ADA}, log=log))
    files = {**files_of(packed), "log/silo-1.witnessed": note.encode()}
    return verify_pack(resigned(files, records))


@pytest.mark.parametrize(
    ("by", "verifies"), [("aggregator", True), ("server-0", True), ("silo-2", False), ("silo-1", False)]
)
def test_a_silos_log_is_witnessed_by_servers_and_by_nobody_else(
    records: Records, by: str, verifies: bool
) -> None:
    log = own_log(records, SILO, [yes(records)])
    note = sign_checkpoint(log.origin, log.head, log.key)
    report = with_witnessed(records, log, cosigned(records, note, by))
    assert report.verified == verifies, report.fault
    if verifies:
        assert SILO not in report.summary["unwitnessed"]  # type: ignore[operator]  # a list
    else:
        assert fault_of(report) == ("log/silo-1.witnessed", "0 cosigned it, and it takes 1")


def test_a_silos_log_that_does_not_continue_what_a_server_cosigned_is_named(records: Records) -> None:
    log, other = own_log(records, SILO, [yes(records)]), own_log(records, SILO, [yes(records)])
    note = sign_checkpoint(other.origin, other.head, other.key)
    entry, sentence = fault_of(with_witnessed(records, log, cosigned(records, note, "aggregator")))
    assert (entry, sentence) == ("log/silo-1.witnessed", "log/silo-1.jsonl does not continue it")
