"""An insider who may sign packs alters one: whatever she cannot sign for others, the verifier finds.

Each attack re-signs the manifest with the researcher's own key, so only the checks behind it can catch it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sealsum_verify.archive import write_archive
from sealsum_verify.verify import verify_pack

from privacy.canonical import canonical_bytes
from tests.evidence_pack import edited, files_of, honest_records, resigned, shared_pack, shared_records

Files = dict[str, bytes]


def fault_of(files: Files, signer: str = "researcher") -> tuple[int, str]:
    """Number of the check that failed, and what it said."""
    records = shared_records()
    report = verify_pack(resigned(files, records, signer), records.federation.officers.digest)
    assert report.fault is not None, "the attack went unnoticed"
    assert not report.verified
    return report.passed + 1, str(report.fault)


def body_edit(path: list[Any], change: Callable[[dict[str, Any]], None]) -> Callable[[Any], None]:
    """Change the body of the envelope at ``path`` and leave its signature as it was."""

    def edit(document: Any) -> None:
        envelope = document
        for step in path:
            envelope = envelope[step]
        body = json.loads(envelope["body"])
        change(body)
        envelope["body"] = canonical_bytes(body).decode()

    return edit


def lines_edit(files: Files, name: str, change: Callable[[list[bytes]], list[bytes]]) -> Files:
    return {**files, name: b"".join(line + b"\n" for line in change(files[name].splitlines()))}


def swap(lines: list[bytes], first: int, second: int) -> list[bytes]:
    lines[first], lines[second] = lines[second], lines[first]
    return lines


LOG = "log/aggregator.jsonl"
LEDGER = "dp/ledger/silo-2.jsonl"
ROUND = "rounds/0001.json"
JOB = "job/job.json"


def test_the_untouched_pack_verifies_so_the_attacks_mean_something() -> None:
    records = shared_records()
    report = verify_pack(resigned(files_of(shared_pack()), records), records.federation.officers.digest)
    assert report.verified, report.fault


ENTRY_ATTACKS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the first entry dropped": lambda lines: lines[1:],
    "a middle entry dropped": lambda lines: lines[:2] + lines[3:],
    "the tail cut at a witnessed entry": lambda lines: lines[:2],
    "everything dropped": lambda lines: [],
    "two entries reordered": lambda lines: swap(lines, 1, 2),
    "an entry duplicated": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "the last entry duplicated": lambda lines: [*lines, lines[-1]],
    "an entry altered": lambda lines: [*lines[:1], lines[1].replace(b"2026", b"2027"), *lines[2:]],
    "an entry in another spelling": lambda lines: [lines[0].replace(b":", b": ", 1), *lines[1:]],
    "a blank line added": lambda lines: [*lines, b""],
}


@pytest.mark.parametrize("attack", ENTRY_ATTACKS)
@pytest.mark.parametrize("name", [LOG, "log/server-0.jsonl", "log/server-1.jsonl", LEDGER])
def test_a_log_or_ledger_with(attack: str, name: str) -> None:
    files = lines_edit(files_of(shared_pack()), name, ENTRY_ATTACKS[attack])
    number, fault = fault_of(files)
    assert number in (10, 11)
    # A log that verifies but lacks what a round says is told by its own name.
    assert name in fault


def test_a_log_entry_moved_into_another_log_is_not_its_owners() -> None:
    files = files_of(shared_pack())
    number, fault = fault_of({**files, "log/server-0.jsonl": files["log/server-1.jsonl"]})
    assert (number, "log/server-0.jsonl entry 0" in fault) == (10, True)


def test_one_silos_ledger_does_not_pass_for_anothers() -> None:
    files = files_of(shared_pack())
    number, fault = fault_of({**files, LEDGER: files["dp/ledger/silo-1.jsonl"]})
    assert (number, f"{LEDGER} entry 0" in fault) == (11, True)


def drop(files: Files, name: str) -> Files:
    return {other: raw for other, raw in files.items() if other != name}


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        (LEDGER, 11, "silo took part"),
        (LOG, 10, "expected the logs"),
        ("log/server-1.jsonl", 10, "expected the logs"),
        ("rounds/0001.json", 9, "last published model"),
        ("rounds/0002.json", 10, "that the pack lacks"),
        ("VERIFY.md", 2, "missing"),
        ("who/officers.json", 2, "missing"),
        ("dp/claim.json", 2, "missing"),
    ],
)
def test_a_pack_without_a_file_fails(name: str, number: int, message: str) -> None:
    found, fault = fault_of(drop(files_of(shared_pack()), name))
    assert (found, message in fault) == (number, True), fault


@pytest.mark.parametrize(
    "name", ["extra.bin", "log/silo-1.jsonl", "dp/ledger/nobody.jsonl", "rounds/0003.json"]
)
def test_a_pack_with_a_foreign_file_fails(name: str) -> None:
    files = files_of(shared_pack())
    like = {"rounds": "rounds/0002.json", "log": LOG, "dp": LEDGER}.get(name.split("/")[0], "VERIFY.md")
    fault_of({**files, name: files[like]})


def test_rounds_cannot_trade_places() -> None:
    files = files_of(shared_pack())
    traded = {**files, ROUND: files["rounds/0002.json"], "rounds/0002.json": files[ROUND]}
    number, fault = fault_of(traded)
    assert (number, "it holds round" in fault) == (7, True)


ROUND_EDITS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "a manifest dropped": (8, lambda d: d["manifests"].pop("silo-3")),
    "a manifest under another name": (
        8,
        lambda d: d["manifests"].update({"silo-3": d["manifests"]["silo-2"]}),
    ),
    "a manifest's part altered": (
        8,
        body_edit(["manifests", "silo-3"], lambda b: b.update(parts=["0" * 64])),
    ),
    "an accepted set dropped": (8, lambda d: d["accepted"].pop()),
    "an accepted set twice": (8, lambda d: d["accepted"].append(d["accepted"][0])),
    "a survivor set dropped": (8, lambda d: d["survivors"].pop()),
    "a survivor removed": (
        8,
        body_edit(["survivors", 0], lambda b: (b["survivors"].pop(), b["manifests"].pop())),
    ),
    "an opening dropped": (8, lambda d: d["openings"].pop()),
    "an opening twice": (8, lambda d: d["openings"].append(d["openings"][0])),
    "an opening's share altered": (8, body_edit(["openings", 0], lambda b: b.update(parts=["0" * 64]))),
    "the openings of the result hidden": (8, body_edit(["result"], lambda b: b.update(openings=0))),
    "another model out": (8, body_edit(["result"], lambda b: b.update(model_out="0" * 64))),
    "the offer's plan altered": (7, body_edit(["offer"], lambda b: b["plan"].update(min_survivors=2))),
    "the offer's log head altered": (7, body_edit(["offer"], lambda b: b["log"]["since"].update(size=0))),
    "a looser policy in the plan": (7, body_edit(["offer"], lambda b: b["plan"].update(policy="0" * 64))),
    "an unknown field": (7, lambda d: d.update(note="all is well")),
    "a missing field": (7, lambda d: d.pop("refusals")),
}


@pytest.mark.parametrize("attack", ROUND_EDITS)
def test_a_round_with(attack: str) -> None:
    number, edit = ROUND_EDITS[attack]

    def in_place(document: Any) -> None:
        edit(document)

    found, fault = fault_of(edited(files_of(shared_pack()), ROUND, in_place))
    assert (found, fault.startswith(ROUND)) == (number, True), fault


def test_messages_of_one_round_do_not_serve_another() -> None:
    files = files_of(shared_pack())
    other = json.loads(files["rounds/0002.json"])
    for field in ("manifests", "accepted", "survivors", "openings", "result"):
        number, fault = fault_of(edited(files, ROUND, lambda d, f=field: d.update({f: other[f]})))
        assert (number, "another context" in fault) == (8, True), fault


def test_a_silos_signature_does_not_serve_a_server() -> None:
    def edit(document: Any) -> None:
        document["accepted"][0]["sender"] = "silo-1"

    number, fault = fault_of(edited(files_of(shared_pack()), ROUND, edit))
    assert (number, "expected share_server" in fault) == (8, True)


CLAIM_EDITS: dict[str, Callable[[Any], Any]] = {
    "a smaller ε": lambda c: c["silos"]["silo-1"].update(epsilon="0.1000"),
    "a larger ε": lambda c: c["silos"]["silo-1"].update(epsilon="5.0000"),
    "a smaller RDP value": lambda c: c["silos"]["silo-1"].update(epsilon_rdp="0.1"),
    "fewer rounds": lambda c: c["silos"]["silo-1"].update(rounds=1),
    "fewer steps": lambda c: c["silos"]["silo-1"].update(steps=1),
    "a silo hidden": lambda c: c["silos"].pop("silo-1"),
    "a silo invented": lambda c: c["silos"].update({"silo-9": c["silos"]["silo-1"]}),
    "a smaller δ": lambda c: c.update(delta="1e-09"),
    "another unit": lambda c: c.update(unit="record"),
    "more noise than the job had": lambda c: c["mechanism"].update(noise_multiplier="8.0"),
    "a smaller clip": lambda c: c["mechanism"].update(clip_l2="0.1"),
    "another scheme": lambda c: c.update(scheme="bfv"),
    "a comforting sentence": lambda c: c.update(statement="No data ever left."),
    "an ε that is no number": lambda c: c["silos"]["silo-1"].update(epsilon="nan"),
    "an ε that is a JSON number": lambda c: c["silos"]["silo-1"].update(epsilon=1),
}


@pytest.mark.parametrize("attack", CLAIM_EDITS)
def test_a_claim_with(attack: str) -> None:
    def in_place(claim: Any) -> None:
        CLAIM_EDITS[attack](claim)

    number, fault = fault_of(edited(files_of(shared_pack()), "dp/claim.json", in_place))
    assert (number, fault.startswith("dp/claim.json")) == (12, True), fault


def test_an_epsilon_two_percent_too_small_is_told_from_the_true_one() -> None:
    def edit(claim: Any) -> None:
        row = claim["silos"]["silo-1"]
        smaller = f"{float(row['epsilon']) * 0.98:.4f}"
        claim["statement"] = claim["statement"].replace(
            f"silo-1: ε = {row['epsilon']}", f"silo-1: ε = {smaller}"
        )
        row["epsilon"] = smaller

    number, fault = fault_of(edited(files_of(shared_pack()), "dp/claim.json", edit))
    assert (number, "the least it can be" in fault) == (12, True), fault


def test_a_policy_loosened_by_one_letter_is_not_the_charters() -> None:
    files = files_of(shared_pack())
    text = files["policy/policy.yaml"]
    number, _ = fault_of({**files, "policy/policy.yaml": text + b"\n"})
    assert number == 5


def test_a_dataset_card_says_what_the_job_says() -> None:
    files = edited(files_of(shared_pack()), "data/card.json", lambda card: card.update(purpose="care"))
    assert fault_of(files)[0] == 6


def test_a_member_cannot_add_herself_to_the_charter() -> None:
    def edit(document: Any) -> None:
        body = json.loads(document["body"])
        body["members"][0]["verify_key"] = "0" * 64
        document["body"] = canonical_bytes(body).decode()

    assert fault_of(edited(files_of(shared_pack()), "who/charter.json", edit))[0] == 3


def test_other_officers_charter_fails_the_pin_and_without_it_is_called_not_pinned() -> None:
    forged = honest_records(1)
    pinned = verify_pack(forged.pack(), shared_records().federation.officers.digest)
    assert (pinned.passed, pinned.verified) == (2, False)
    unpinned = verify_pack(forged.pack())
    assert (unpinned.verified, unpinned.pinned) == (True, False)


def test_a_pack_signed_by_nobody_of_the_federation_fails() -> None:
    files = files_of(shared_pack())
    manifest = json.loads(files["manifest.json"]) | {"signer": "mallory"}
    files["manifest.json"] = canonical_bytes(manifest)
    report = verify_pack(write_archive(files))
    assert (report.passed, "not in the roster" in str(report.fault)) == (3, True)


def test_a_manifest_signed_by_another_member_than_it_names_fails() -> None:
    records = shared_records()
    files = files_of(shared_pack())
    by_silo = files_of(resigned(files, records, "silo-1"))
    by_silo["manifest.json"] = files_of(resigned(files, records))["manifest.json"]
    report = verify_pack(write_archive(by_silo))
    assert (report.passed, report.fault and report.fault.entry) == (3, "manifest.sig")
