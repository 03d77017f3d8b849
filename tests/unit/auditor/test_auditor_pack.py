"""What an honest pack looks like, and what the verifier says of it."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
import zipfile
from pathlib import Path
from typing import Any

import pytest
import sealsum_verify
from sealsum_verify.archive import read_archive, write_archive
from sealsum_verify.cli import main
from sealsum_verify.encoding import Fault
from sealsum_verify.verify import CHECKS, verify_pack

from privacy.canonical import canonical_bytes
from privacy.errors import LedgerDamaged, MalformedMessage, NotAllowed, OutOfOrder
from privacy.ids import PartyId, SiloId
from privacy.plan import TrainingTerms, VectorTerms
from sealsum.evidence import build_pack
from sealsum.evidence_archive import canonical_zip
from tests.evidence_pack import (
    AT,
    files_of,
    honest_records,
    resigned,
    shared_pack,
    shared_records,
    started_records,
)
from tests.evidence_schemes import EMPTY_SECTIONS, PROTOCOLS, Protocol

AUDITOR = Path(sealsum_verify.__file__).parent
PLAIN = TrainingTerms(algorithm="fedavg", local_steps=2, learning_rate=0.5, server_learning_rate=1.0)


def test_an_honest_pack_passes_every_check() -> None:
    report = verify_pack(shared_pack(), shared_records().federation.officers.digest)
    assert (report.verified, report.passed, report.pinned) == (True, len(CHECKS), True)
    assert report.summary["openings"] == report.summary["rounds"] == 2
    assert report.summary["state"] == "finished"
    assert sorted(report.epsilon) == ["silo-1", "silo-2", "silo-3", "silo-4"]


def test_a_pack_of_dropouts_refusals_and_aborted_rounds_passes() -> None:
    records = started_records(rounds=5)
    records.add_round(1, absent=("silo-4",))
    records.add_round(2, refusing=("silo-1",))
    records.add_round(3, outcome="aborted", opening=False, absent=("silo-1", "silo-2"))
    records.add_round(4, outcome="aborted")  # the aggregator died between opening and publishing
    records.add_round(5, job_state="finished")
    report = verify_pack(records.pack())
    assert report.verified, report.fault
    assert (report.summary["rounds"], report.summary["openings"]) == (5, 4)
    assert (report.epsilon["silo-1"].rounds, report.epsilon["silo-3"].rounds) == (3, 5)


def test_a_round_that_was_reserved_and_aborted_still_counts_in_the_claim() -> None:
    records = started_records(rounds=2)
    records.add_round(1, outcome="aborted", opening=False)
    records.add_round(2, job_state="finished")
    claim = json.loads(files_of(records.pack())["dp/claim.json"])
    assert claim["silos"]["silo-1"]["rounds"] == 2


def test_a_job_before_its_first_round_has_evidence_too() -> None:
    report = verify_pack(started_records().pack())
    assert (report.verified, report.summary["state"]) == (True, "waiting")


def test_a_job_without_dp_claims_none() -> None:
    report = verify_pack(honest_records(1, dp=None, training=PLAIN).pack())
    assert report.verified, report.fault
    assert report.epsilon == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_honest_pack_of_each_scheme_passes_every_check(protocol: Protocol) -> None:
    report = verify_pack(shared_pack(protocol), shared_records(protocol).federation.officers.digest)
    assert report.verified, report.fault
    assert report.summary["openings"] == report.summary["rounds"] == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pack_of_dropouts_and_aborted_rounds_of_each_scheme_passes(protocol: Protocol) -> None:
    records = started_records(protocol, 4, dp=None, training=PLAIN)
    records.add_round(1, absent=("silo-4",))
    records.add_round(2, outcome="aborted", opening=False, absent=("silo-1", "silo-2"))
    records.add_round(3, outcome="aborted")
    records.add_round(4, refusing=("silo-1",), job_state="finished")
    report = verify_pack(records.pack())
    assert report.verified, report.fault
    assert (report.summary["rounds"], report.summary["openings"]) == (4, 3)


def test_every_round_has_every_section_and_only_its_schemes_are_filled() -> None:
    filled = {
        protocol: {name for name, sent in _round(protocol).items() if sent and name not in COMMON}
        for protocol in PROTOCOLS
    }
    assert filled == {
        "additive": {"accepted", "openings"},
        "validity": {"accepted", "openings", "coins", "proofs", "verdicts"},
        "pairwise": {"keys", "consistency"},
        "bfv": {"sum", "opened"},
        "ckks": {"sum", "opened"},
        "threshold_bfv": {"keys", "sum", "opened"},
        "threshold_ckks": {"keys", "sum", "opened"},
    }


COMMON = ("offer", "manifests", "survivors", "result")


def _round(protocol: Protocol) -> dict[str, Any]:
    round_: dict[str, Any] = json.loads(files_of(shared_pack(protocol))["rounds/0001.json"])
    assert set(round_) == {*COMMON, *EMPTY_SECTIONS}
    return round_


def test_a_silo_may_sign_a_pack_but_only_as_itself() -> None:
    report = verify_pack(shared_records().pack("silo-3"))
    assert (report.verified, report.summary["signer"]) == (True, "silo-3")


def test_the_same_records_give_the_same_bytes() -> None:
    assert shared_records().pack() == shared_pack()


def test_the_pack_opens_with_any_zip_program() -> None:
    with zipfile.ZipFile(io.BytesIO(shared_pack())) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == files_of(shared_pack())


def test_the_exporters_zip_and_the_verifiers_are_the_same_bytes() -> None:
    files = files_of(shared_pack())
    assert write_archive(files) == canonical_zip(files) == shared_pack()


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda raw: raw + b"\0", "archive"),
        (lambda raw: b"\0" + raw, "archive"),
        (lambda raw: raw[:-1], "archive"),
        (lambda raw: raw[: len(raw) // 2], "archive"),
        (lambda raw: raw[:-2] + b"\x01\x00!", "archive"),
        (lambda raw: b"", "archive"),
        (lambda raw: raw + raw, "archive"),
    ],
)
def test_bytes_around_the_archive_are_refused(alter: object, message: str) -> None:
    assert callable(alter)
    with pytest.raises(Fault, match=message):
        read_archive(alter(shared_pack()))


@pytest.mark.parametrize("name", ["../up", "/root", "a//b", "a\\b", "é", ".hidden", "a/"])
def test_names_that_could_leave_a_folder_are_refused(name: str) -> None:
    with pytest.raises(Fault, match="not plain"):
        read_archive(write_archive({name: b""}))


def test_a_compressed_zip_of_the_same_files_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in files_of(shared_pack()).items():
            archive.writestr(name, raw)
    with pytest.raises(Fault):
        read_archive(buffer.getvalue())


def test_a_document_nested_without_end_is_a_fault_not_a_crash() -> None:
    files = files_of(shared_pack())
    for depth in (50, 900, 980, 990, 1_000, 5_000, 200_000):
        bomb = {**files, "data/card.json": b"[" * depth + b"]" * depth}
        assert not verify_pack(resigned(bomb, shared_records())).verified


# --- the command ---


def test_the_command_ends_with_0_for_a_verified_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(shared_pack())
    assert main([str(pack), "--officers", shared_records().federation.officers.digest]) == 0
    said = capsys.readouterr().out
    assert said.count("✓") == len(CHECKS)
    assert "NOT PINNED" not in said


def test_each_fact_of_a_verdict_has_a_line_of_its_own_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(shared_pack())
    main([str(pack)])
    facts = capsys.readouterr().out.partition("VERIFIED")[2]
    assert not set("{}[]") & set(facts)
    assert re.search(r"(?m)^ +job \S+$", facts)


def test_the_command_says_when_the_officers_are_not_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(shared_pack())
    assert main([str(pack)]) == 0
    assert "NOT PINNED: compare this digest" in capsys.readouterr().out


def test_the_command_ends_with_5_and_names_the_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(shared_pack())
    files["log/server-0.jsonl"] = files["log/server-0.jsonl"].replace(b"started", b"stopped")
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(resigned(files, shared_records()))
    assert main([str(pack)]) == 5
    said = capsys.readouterr().out
    assert "✗ 10" in said
    assert "log/server-0.jsonl entry 0" in said
    assert main([str(pack), "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert (document["verified"], document["fault"]["entry"]) == (False, "log/server-0.jsonl entry 0")
    assert [check["passed"] for check in document["checks"]] == [True] * 9 + [False] + [None] * 5


def test_pinned_officers_that_are_not_the_federations_ends_with_5(tmp_path: Path) -> None:
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(shared_pack())
    assert main([str(pack), "--officers", "ab" * 32]) == 5


def test_a_file_that_cannot_be_read_ends_with_78_and_bad_usage_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.zip")]) == 78
    assert "cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["x", "--officers", "xyz"])


def test_what_a_pack_says_cannot_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(shared_pack())
    card = json.loads(files["data/card.json"])
    files["dp/claim.json"] = canonical_bytes({"silos": {"\x1b[2J": card}, "statement": ""})
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(resigned(files, shared_records()))
    assert main([str(pack)]) == 5
    assert "\x1b" not in capsys.readouterr().out


# --- the program itself ---


def test_it_imports_the_standard_library_and_cryptography_alone() -> None:
    allowed = sys.stdlib_module_names | {"cryptography", "sealsum_verify"}
    for path in AUDITOR.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_it_is_short_enough_to_read_before_trusting_it() -> None:
    """Under 1,884 lines of code, and a table of what documents look like; only lines of code count."""
    assert sum(_code_lines(path.read_text("utf-8")) for path in AUDITOR.glob("*.py")) < 1884
    assert len((AUDITOR / "shapes.txt").read_text("utf-8").splitlines()) < 99


def _code_lines(source: str) -> int:
    prose = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    space = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in space]
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - prose)


# --- the exporter ---


def test_the_exporter_refuses_what_is_not_evidence() -> None:
    records = shared_records()
    identity = records.identity("researcher")
    evidence = records.evidence()
    del evidence["rounds"][0]["result"]
    with pytest.raises(MalformedMessage, match=r"evidence: rounds\.0\.result"):
        build_pack(evidence, {}, {}, identity, AT)


def test_the_exporter_refuses_a_job_with_an_open_round() -> None:
    records = started_records(rounds=2)
    records.add_round(1)
    records.add_round(2)
    del records.rounds[1]
    with pytest.raises(OutOfOrder, match="round 2 is open; export again"):
        records.pack()


def test_the_exporter_refuses_a_ledger_that_does_not_verify() -> None:
    records = shared_records()
    silo = SiloId(PartyId("silo-1"))
    broken = records.ledgers[silo].lines().replace(b'"steps":2', b'"steps":1')
    with pytest.raises(LedgerDamaged):
        build_pack(records.evidence(), {}, {silo: broken}, records.identity("researcher"), AT)
    stranger = SiloId(PartyId("nobody"))
    with pytest.raises(NotAllowed):
        build_pack(records.evidence(), {}, {stranger: broken}, records.identity("researcher"), AT)


def test_the_claim_states_what_a_dp_claim_must_state() -> None:
    claim = json.loads(files_of(shared_pack())["dp/claim.json"])
    stated = {"unit", "records_per_unit", "adjacency", "delta", "mechanism", "sampling", "accountant"}
    stated |= {"composition", "model", "randomness", "silos", "statement", "limits"}
    for field in stated:
        assert claim[field], field
    assert claim["scheme"] == "additive"
    assert "all share servers but one" in claim["secagg"]["withstands"]
    assert "every share server signs" in claim["secagg"]["survivors"]
    assert "no party checked single updates" in claim["secagg"]["validity"]
    assert set(claim["sampling"]) == {"assumed", "implemented"}


def test_no_secret_is_in_a_pack() -> None:
    records = shared_records()
    for party in records.federation.parties.values():
        raw = party.signing.private.private_bytes_raw()
        assert raw not in shared_pack()
        assert raw.hex().encode() not in shared_pack()


@pytest.mark.parametrize("protocol", ["additive", "pairwise"])
def test_a_pack_of_packed_coordinates_is_judged_by_its_own_lengths(protocol: Protocol) -> None:
    packed = VectorTerms(coordinate_bound=0.5, scale_bits=7, per_element=3)
    report = verify_pack(honest_records(1, protocol, dp=None, training=PLAIN, vector=packed).pack())
    assert report.verified, report.fault
    crowded = packed.model_copy(update={"per_element": 4})
    report = verify_pack(honest_records(1, protocol, dp=None, training=PLAIN, vector=crowded).pack())
    assert not report.verified
    assert "per_element" in str(report.fault)
