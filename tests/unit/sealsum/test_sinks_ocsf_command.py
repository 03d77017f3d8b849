"""``sealsum audit ocsf``: a log in, events out, and nothing that is no log."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from privacy.errors import ConfigurationError
from sealsum.evidence_commands import audit
from tests.unit.audit_sinks.sinks_receivers import ORIGIN, record


def test_every_record_of_a_log_becomes_one_event(tmp_path: Path) -> None:
    log, out = tmp_path / "log.jsonl", tmp_path / "events.jsonl"
    log.write_bytes(b"".join(record(seq).line() + b"\n" for seq in range(3)))
    given = ["ocsf", str(log), "--origin", ORIGIN]
    printed = CliRunner().invoke(audit, given)
    said = CliRunner().invoke(audit, [*given, "--out", str(out), "--json"])
    assert (printed.exit_code, said.exit_code) == (0, 0)
    assert json.loads(said.output) == {"events": 3, "out": str(out)}
    assert out.read_text() == printed.output
    events = [json.loads(line) for line in printed.output.splitlines()]
    assert [event["metadata"]["uid"] for event in events] == [f"{ORIGIN}#{seq}" for seq in range(3)]


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(record(0).line() + b"\n{}\n")
    result = CliRunner().invoke(audit, ["ocsf", str(log), "--origin", ORIGIN])
    assert isinstance(result.exception, ConfigurationError)
    assert "line 2: expected a record of a log" in str(result.exception)
