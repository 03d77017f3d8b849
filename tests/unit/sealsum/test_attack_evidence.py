"""Results of attacks in an evidence pack: read for form, kept from change, and believed by no check."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sealsum_verify.archive import write_archive
from sealsum_verify.cli import as_json, as_text
from sealsum_verify.verify import verify_pack

from privacy.errors import ConfigurationError
from privacy.ids import PartyId, ServerId
from sealsum.attack.outcome import Findings, Outcome
from sealsum.attack.suite import ATTACKS, Result
from sealsum.evidence import build_pack
from sealsum.evidence_attack import checked_results
from tests.evidence_pack import AT, files_of, honest_records, resigned

ENTRY = "tests/attack.json"


def _plain() -> dict[str, Any]:
    outcome = Outcome("canaries", "σ = 1", True, False, "ε ≥ 4.06", "claim ε = 4.38", {"mu_estimate": 1.0})
    return Result("quick", ((ATTACKS[0], Findings((outcome,))),), 1.25).plain()


def _raw() -> bytes:
    return json.dumps(_plain(), ensure_ascii=False, indent=2).encode()


def test_what_the_command_writes_may_go_into_a_pack() -> None:
    assert [row.name for row in checked_results(_raw()).attacks] == ["canaries"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suite": "none"}, "suite"),
        ({"attacks": []}, "attacks"),
        ({"records": 303}, "records"),
        ({"attacks": [{"name": "canaries"}]}, "attacks.0.protection"),
    ],
)
def test_what_is_not_an_attacks_result_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"--attack-results: {message}"):
        checked_results(json.dumps(_plain() | change).encode())


def test_a_pack_with_results_verifies_and_says_that_nobody_checked_them() -> None:
    records = honest_records()
    servers = {ServerId(PartyId(p)): c.served() for p, c in records.logs.items() if p != "aggregator"}
    books = {silo: ledger.lines() for silo, ledger in records.ledgers.items()}
    signer = records.identity("researcher")
    pack = build_pack(records.evidence(), servers, books, signer, AT, _raw())
    report = verify_pack(pack, signer.pin.officers)
    assert report.verified
    assert files_of(pack)[ENTRY] == _raw()
    assert as_json(report)["self_reported"] == [ENTRY]
    assert f"{ENTRY}: self-reported by whoever exported the pack, not verified" in as_text(report)


def test_a_pack_without_results_reports_none() -> None:
    report = verify_pack(honest_records().pack())
    assert as_json(report)["self_reported"] == []
    assert "self-reported" not in as_text(report)


def test_results_cannot_be_changed_or_left_out_once_signed() -> None:
    records = honest_records()
    pack = resigned({**files_of(records.pack()), ENTRY: _raw()}, records)
    assert verify_pack(pack).verified
    files = files_of(pack)
    altered = verify_pack(write_archive({**files, ENTRY: _raw().replace(b"4.06", b"0.06")}))
    assert altered.fault is not None
    assert altered.fault.entry == ENTRY
    missing = verify_pack(write_archive({name: raw for name, raw in files.items() if name != ENTRY}))
    assert missing.fault is not None
    assert missing.fault.entry == ENTRY


def test_no_other_file_comes_in_beside_them() -> None:
    records = honest_records()
    report = verify_pack(resigned({**files_of(records.pack()), "tests/more.json": b"{}"}, records))
    assert report.fault is not None
    assert "no such file" in str(report.fault)
