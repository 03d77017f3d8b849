"""``sealsum keys``: a key is made once, readable by its owner only, and only its public half is shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from click.testing import CliRunner

from privacy.identity import SigningKey
from sealsum.cli import cli


def test_a_new_key_is_private_and_show_prints_its_public_half(tmp_path: Path) -> None:
    file = tmp_path / "ada.pem"
    made = CliRunner().invoke(cli, ["keys", "new", "--out", str(file)])
    assert made.exit_code == 0, made.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = SigningKey.from_pem(file.read_bytes()).verify_key
    assert made.output.strip() == key
    shown = CliRunner().invoke(cli, ["keys", "show", str(file), "--json"])
    assert json.loads(shown.output) == {"file": str(file), "verify_key": key}


def test_an_existing_key_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "ada.pem"
    CliRunner().invoke(cli, ["keys", "new", "--out", str(file)])
    before = file.read_bytes()
    again = CliRunner().invoke(cli, ["keys", "new", "--out", str(file)])
    assert again.exit_code == 78
    assert "a key exists already" in again.stderr
    assert file.read_bytes() == before


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ada.pem"
    CliRunner().invoke(cli, ["keys", "new", "--out", str(file)])
    file.chmod(0o640)
    shown = CliRunner().invoke(cli, ["keys", "show", str(file)])
    assert shown.exit_code == 78
    assert "chmod 600" in shown.stderr
