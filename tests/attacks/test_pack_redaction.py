"""Redaction as a hiding place: who signs a pack takes out the field by which a round would be missed."""

from __future__ import annotations

from collections import Counter

import pytest
from sealsum_verify.redactions import NEEDED as FOLLOWED
from sealsum_verify.verify import Report, verify_pack

from privacy.canonical import canonical_bytes
from privacy.transparency.leaf import Record, parse_record
from sealsum.evidence_redaction import NEEDED
from tests.evidence_pack import Records, files_of, honest_records, resigned, shared_pack, shared_records

Files = dict[str, bytes]


def without(record: Record, field: str) -> Record:
    return record.redact(record.body.keys() - {field})


def listed(files: Files, records: Records) -> Report:
    """The verifier's word on these files, their redactions listed as they are."""
    found = Counter(
        (name, field)
        for name in files
        if name.endswith(".jsonl") and name.startswith("log/")
        for record in map(parse_record, files[name].splitlines())
        for field in record.fields.keys() - record.body.keys()
    )
    rows = [
        {"entry": name, "field": field, "count": count, "reason": "privacy", "sha256": None}
        for (name, field), count in sorted(found.items())
    ]
    told = {**files, "REDACTIONS.json": canonical_bytes({"redactions": rows})}
    return verify_pack(resigned(told, records), records.federation.officers.digest)


def test_a_round_is_not_dropped_by_redacting_which_job_it_was_offered_for() -> None:
    records = honest_records(rounds=2)
    del records.rounds[1]
    for ledger in records.ledgers.values():
        settled = next(place for place, entry in enumerate(ledger.entries) if entry.kind == "settle")
        del ledger.entries[settled + 1 :]
    for log in records.logs.values():
        log.entries = [without(e, "job") if e.body.get("round") == 2 else e for e in log.entries]
    report = listed(files_of(records.pack()), records)
    assert not report.verified
    assert report.fault is not None
    assert "job is redacted" in report.fault.sentence


@pytest.mark.parametrize("field", sorted(NEEDED))
def test_no_field_by_which_rounds_are_followed_may_be_withheld(field: str) -> None:
    files, log = files_of(shared_pack()), "log/aggregator.jsonl"
    records = [parse_record(line) for line in files[log].splitlines()]
    having = [record.seq for record in records if field in record.body]
    if having:
        last = having[-1]
        records[last] = without(records[last], field)
        files[log] = b"".join(record.line() + b"\n" for record in records)
    assert listed(files, shared_records()).verified is not bool(having)


def test_exporter_and_verifier_know_the_same_fields() -> None:
    assert FOLLOWED == NEEDED


def test_a_log_whose_witnessed_checkpoint_was_left_out_is_named() -> None:
    files, records = files_of(shared_pack()), shared_records()
    before = listed(files, records).summary["unwitnessed"]
    assert "aggregator" not in before  # type: ignore[operator]  # a list of names
    del files["log/aggregator.witnessed"]
    report = listed(files, records)
    assert report.verified, report.fault
    assert report.summary["unwitnessed"][0] == "aggregator"  # type: ignore[index]  # likewise
