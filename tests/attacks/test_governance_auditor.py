"""The verifier asks for itself whether enough officers, of the right version, endorsed a pack's charter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sealsum_verify.verify import Report, verify_pack

from privacy.canonical import canonical_bytes
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.officers import Endorsed, Officer, Officers, unsigned
from privacy.roster import Charter
from privacy.wire.charter import EndorsedCharter
from privacy.wire.proposal import assemble, endorse
from tests.evidence_pack import (
    Records,
    edited,
    files_of,
    honest_records,
    resigned,
    shared_pack,
    shared_records,
)
from tests.federation import Federation

CHARTER, OFFICERS = "who/charter.json", "who/officers.json"


def verified(files: Mapping[str, bytes], records: Records | None = None, pinned: str | None = None) -> Report:
    """By an auditor who pins the officers, of a pack that a member has signed whole."""
    records = records or shared_records()
    return verify_pack(resigned(files, records), pinned or records.federation.officers.digest)


def fault_of(files: Mapping[str, bytes], entry: str) -> str:
    report = verified(files)
    assert (report.passed, report.verified) == (2, False)
    assert report.fault is not None
    assert report.fault.entry.startswith(entry)
    return report.fault.sentence


def without_officer_2(document: Any) -> None:
    del document["signatures"]["officer-2"]


def officer_1_twice(document: Any) -> None:
    document["signatures"]["officer-2"] = document["signatures"]["officer-1"]


def of_a_stranger(document: Any) -> None:
    document["signatures"]["officer-9"] = document["signatures"]["officer-1"]


def one_bad_of_three(document: Any) -> None:
    document["signatures"]["officer-3"] = "0" * 128


def another_epoch(document: Any) -> None:
    document["body"] = document["body"].replace('"epoch":1', '"epoch":2')


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without_officer_2, "expected 2 of its officers to sign, got 1"),
        (officer_1_twice, "charter endorsed by officer-2: the signature is not its author's"),
        (of_a_stranger, "officer-9 signed it, and is no officer"),
        (one_bad_of_three, "charter endorsed by officer-3"),
        (another_epoch, "endorsed by officer-1"),
    ],
)
def test_a_charter_that_too_few_officers_endorsed_is_found(edit: Callable[[Any], None], words: str) -> None:
    assert words in fault_of(edited(files_of(shared_pack()), CHARTER, edit), CHARTER)


def test_more_signatures_than_needed_are_no_fault() -> None:
    federation = shared_records().federation
    every = federation.endorse(federation.charter, by=sorted(federation.officer_keys))
    files = {**files_of(shared_pack()), CHARTER: canonical_bytes(every.charter)}
    assert verified(files).verified


def test_officers_of_one_institution_are_not_enough_unless_they_say_so() -> None:
    federation = shared_records().federation
    body = json.loads(federation.endorsed_charter.officers[0].body)
    body["threshold"] = 1  # which the platform's own model refuses, so it is written by hand
    chain = Endorsed(
        kind="officers",
        context=federation.endorsed_charter.officers[0].context,
        body=canonical_bytes(body).decode(),
        signatures={},
    )
    for name, key in federation.officer_keys.items():
        chain = chain.signed_by(name, key)
    files = {**files_of(shared_pack()), OFFICERS: canonical_bytes([chain.model_dump(mode="json")])}
    assert "one institution alone reaches the threshold" in fault_of(files, OFFICERS)


def test_a_pack_without_officers_proves_nothing() -> None:
    files = {**files_of(shared_pack()), OFFICERS: canonical_bytes([])}
    assert "it names no officers" in fault_of(files, OFFICERS)


# --- rotation ---


def rotated(by: tuple[str, ...]) -> tuple[Records, Officers]:
    """A finished job under a charter of version 2 of the officers, that these have signed."""
    federation = Federation()
    keys = {**federation.officer_keys, PartyId("officer-4"): SigningKey.generate()}
    second = Officers(
        federation=federation.name,
        version=2,
        threshold=2,
        officers=tuple(
            Officer(
                name=PartyId(name),
                legal_entity=f"Hospital {name[-1]}",
                verify_key=keys[PartyId(name)].verify_key,
            )
            for name in ("officer-3", "officer-4")
        ),
    )
    federation.charter = Charter.model_validate(federation.charter.model_dump() | {"officers": second.digest})
    proposal = EndorsedCharter(
        officers=(*federation.endorsed_charter.officers, unsigned(second, "officers", federation.name)),
        charter=unsigned(federation.charter, "charter", federation.name),
    )
    federation.endorsed_charter = assemble(proposal, [endorse(proposal, keys[PartyId(name)]) for name in by])
    records = Records(federation, federation.job_spec(rounds=1))
    records.add_round(1, job_state="finished")
    return records, second


def test_an_auditor_who_pinned_any_version_follows_the_officers() -> None:
    records, second = rotated(("officer-1", "officer-3", "officer-4"))
    for pinned in (records.federation.officers.digest, second.digest):
        report = verify_pack(records.pack(), pinned)
        assert report.verified, report.fault
    report = verify_pack(records.pack())
    assert (report.verified, report.pinned, report.officers) == (True, False, second.digest)


def test_new_officers_whom_the_old_did_not_endorse_are_found() -> None:
    honest, _ = rotated(("officer-1", "officer-3", "officer-4"))
    document = json.loads(files_of(honest.pack())[OFFICERS])
    del document[1]["signatures"]["officer-1"]
    files = {**files_of(honest.pack()), OFFICERS: canonical_bytes(document)}
    report = verified(files, honest)
    assert report.fault is not None
    assert report.fault.entry == f"{OFFICERS} version 2"
    assert "expected 2 of its officers to sign, got 1" in report.fault.sentence


def test_a_charter_that_only_replaced_officers_signed_is_found() -> None:
    honest, _ = rotated(("officer-1", "officer-3", "officer-4"))
    old = honest.federation.endorse(honest.federation.charter, by=("officer-1", "officer-2"))
    files = {**files_of(honest.pack()), CHARTER: canonical_bytes(old.charter)}
    report = verified(files, honest)
    assert report.fault is not None
    assert (report.fault.entry, "officer-1 signed it, and is no officer" in report.fault.sentence) == (
        CHARTER,
        True,
    )


def test_a_version_that_is_left_out_breaks_the_chain() -> None:
    honest, second = rotated(("officer-1", "officer-3", "officer-4"))
    document = json.loads(files_of(honest.pack())[OFFICERS])[1:]
    files = {**files_of(honest.pack()), OFFICERS: canonical_bytes(document)}
    report = verified(files, honest, second.digest)
    assert report.fault is not None
    assert "expected version 1" in report.fault.sentence


def test_other_officers_are_not_the_pinned_ones() -> None:
    report = verify_pack(honest_records(1).pack(), shared_records().federation.officers.digest)
    assert report.fault is not None
    assert "not the pinned ones" in report.fault.sentence
