"""docs/auditing.md is true: its commands run as written, and notice what they say they notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auditing_page import commands, run_page
from tests.evidence_pack import edited, files_of, resigned, shared_pack, shared_records

OFFICERS = shared_records().federation.officers.digest


@pytest.mark.slow
def test_every_command_of_the_page_runs_as_written(tmp_path: Path) -> None:
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(shared_pack())
    ended = run_page(pack, OFFICERS, tmp_path)
    assert ended.returncode == 0, ended.stderr + ended.stdout[-2000:]
    assert "Verified Successfully" in ended.stdout
    assert ended.stdout.count("by hand at most") == 4
    assert "VERIFIED  federation testfed" in ended.stdout
    assert ended.stdout.rstrip().endswith("exit code 5")


@pytest.mark.slow
def test_the_page_stops_at_a_claim_that_is_not_the_ledgers(tmp_path: Path) -> None:
    """The check by hand fails before any program of ours runs."""
    files = edited(
        files_of(shared_pack()), "dp/claim.json", lambda c: c["silos"]["silo-1"].update(epsilon="9.0000")
    )
    pack = tmp_path / "evidence.zip"
    pack.write_bytes(resigned(files, shared_records()))
    ended = run_page(pack, OFFICERS, tmp_path)
    assert ended.returncode != 0
    assert "ask why" in ended.stderr
    assert "NOT VERIFIED" not in ended.stdout


def test_the_page_has_commands_for_each_of_its_steps() -> None:
    for step in ("zipfile", "sha256sum --check", "openssl pkeyutl", "epsilon.py", "sealsum-verify"):
        assert step in commands()
