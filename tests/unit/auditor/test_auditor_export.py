"""``sealsum audit export``: from a researcher's connection and silos' files to a pack that verifies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sealsum_verify.verify import verify_pack

from privacy.errors import ConfigurationError
from sealsum import evidence_commands
from sealsum.served_log import ServedLog
from tests.evidence_pack import Records, shared_records


class Connection:
    """What the SDK answers, without a network."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.charter = records.federation.charter
        self.identity = records.identity("researcher")

    @staticmethod
    def connect(_state: Path, **_how: Any) -> Connection:
        return Connection(shared_records())

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_fault: object) -> None:
        return None

    def job(self, _name: str) -> Connection:
        return self

    def evidence(self) -> dict[str, Any]:
        return self.records.evidence()

    def server_log(self, server: str) -> ServedLog:
        return self.records.logs[server].served()


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(evidence_commands, "Federation", Connection)
    given = ["export", "--job", "heart", "--state", str(tmp_path), "--out", str(tmp_path / "evidence.zip")]
    for silo, ledger in shared_records().ledgers.items():
        (tmp_path / f"{silo}.jsonl").write_bytes(ledger.lines())
        given += ["--ledger", f"{silo}={tmp_path / silo}.jsonl"]
    return given


def test_an_exported_pack_verifies_and_the_command_says_how(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(evidence_commands.audit, options, catch_exceptions=False)
    assert result.exit_code == 0
    officers = shared_records().federation.officers.digest
    assert f"--officers {officers}" in result.output
    assert verify_pack((tmp_path / "evidence.zip").read_bytes(), officers).verified


def test_evidence_is_never_overwritten(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "evidence.zip").write_bytes(b"kept")
    with pytest.raises(ConfigurationError, match="never overwritten"):
        CliRunner().invoke(evidence_commands.audit, options, catch_exceptions=False)
    assert (tmp_path / "evidence.zip").read_bytes() == b"kept"


def test_a_ledger_option_needs_a_silo_and_a_file_once(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(evidence_commands.audit, [*options, "--ledger", "north.jsonl"])
    assert result.exit_code == 2
    assert "expected SILO=FILE" in result.output
    with pytest.raises(ConfigurationError, match="each silo once"):
        CliRunner().invoke(
            evidence_commands.audit, [*options, "--ledger", options[-1]], catch_exceptions=False
        )
