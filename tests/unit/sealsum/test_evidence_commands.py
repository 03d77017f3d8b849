"""``sealsum audit redact`` and ``report``: to another pack that verifies, to a report with a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from sealsum_verify.cli import as_text
from sealsum_verify.verify import verify_pack

from privacy.errors import ConfigurationError, MalformedMessage
from privacy.transparency.leaf import parse_record
from sealsum.redact_command import redact, report
from tests.evidence_pack import files_of, resigned, shared_pack, shared_records

OFFICERS = shared_records().federation.officers.digest


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "evidence.zip"
    path.write_bytes(shared_pack())
    return path


def redacting(pack: Path, *fields: str) -> list[str]:
    state, out = pack.parent / "researcher", pack.parent / "other.zip"
    if not state.exists():
        shared_records().federation.identity("researcher", state)
    words = [word for field in fields for word in ("--field", field)]
    return [str(pack), *words, "--reason", "names", "--state", str(state), "--out", str(out), "--json"]


def test_a_redacted_pack_verifies_and_says_what_is_withheld(pack: Path) -> None:
    result = CliRunner().invoke(redact, redacting(pack, "log:cohort", "log:party"), catch_exceptions=False)
    made = verify_pack((pack.parent / "other.zip").read_bytes(), OFFICERS)
    assert made.verified, made.fault
    assert any("log/aggregator.jsonl: field cohort" in line for line in made.withheld)
    assert "withheld, so not verified: log/aggregator.jsonl: field party" in as_text(made)
    assert {row["field"] for row in json.loads(result.output)["redactions"]} == {"cohort", "party"}
    files = files_of((pack.parent / "other.zip").read_bytes())
    records = [parse_record(line) for line in files["log/aggregator.jsonl"].splitlines()]
    assert not any({"cohort", "party"} & record.body.keys() for record in records)
    assert b"listed in REDACTIONS.json" in files["report.html"]


def test_an_insider_who_redacts_and_does_not_say_so_is_named(pack: Path) -> None:
    CliRunner().invoke(redact, redacting(pack, "log:party"), catch_exceptions=False)
    files = files_of((pack.parent / "other.zip").read_bytes())
    files["REDACTIONS.json"] = b'{"redactions":[]}'
    fault = verify_pack(resigned(files, shared_records()), OFFICERS).fault
    assert fault is not None
    assert fault.entry == "REDACTIONS.json"


def test_a_redacted_value_cannot_come_back_as_another(pack: Path) -> None:
    """The commitment is to one value: whoever discloses another under it breaks the leaf."""
    files = files_of(pack.read_bytes())
    lines = files["log/aggregator.jsonl"].replace(b'"value":"aggregator"', b'"value":"another"', 1)
    fault = verify_pack(resigned({**files, "log/aggregator.jsonl": lines}, shared_records()), OFFICERS).fault
    assert fault is not None
    assert fault.entry == "log/aggregator.jsonl entry 0"


def test_a_pack_that_was_changed_is_not_redacted_but_refused(pack: Path) -> None:
    pack.write_bytes(pack.read_bytes() + b"\0")
    with pytest.raises(MalformedMessage, match="ZIP"):
        CliRunner().invoke(redact, redacting(pack, "log:party"), catch_exceptions=False)


def test_the_report_beside_a_pack_carries_the_verdict(pack: Path) -> None:
    words = [str(pack), "--officers", OFFICERS, "--out", str(pack.parent / "report"), "--json"]
    result = CliRunner().invoke(report, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.output)["verified"] is True
    page = (pack.parent / "report" / "report.html").read_text(encoding="utf-8")
    assert "✓ Verified" in page
    assert (pack.parent / "report" / "report.pdf").read_bytes().startswith(b"%PDF-")
    with pytest.raises(ConfigurationError, match="never overwritten"):
        CliRunner().invoke(report, words, catch_exceptions=False)


def test_the_report_of_a_bad_pack_names_the_entry_and_ends_with_5(pack: Path) -> None:
    files = files_of(pack.read_bytes())
    files["policy/policy.yaml"] += b"# weaker\n"
    pack.write_bytes(resigned(files, shared_records()))
    words = [str(pack), "--officers", OFFICERS, "--out", str(pack.parent / "report")]
    result = CliRunner().invoke(report, words, catch_exceptions=False)
    assert result.exit_code == 5
    assert "NOT VERIFIED policy/policy.yaml" in result.output
    page = (pack.parent / "report" / "report.html").read_text(encoding="utf-8")
    assert "✗ Not verified" in page
    assert "✓ Verified" not in page
