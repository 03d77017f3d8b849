"""``sealsum officer list`` names the officer whose entry is wrong, and what was expected of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sealsum.cli import cli

GOOD_KEY, OTHER_KEY = "a" * 64, "b" * 64


def listed(directory: Path, *officers: tuple[str, str, str], threshold: int = 2) -> str:
    given = [word for one in officers for word in ("--officer", *one)]
    out = str(directory / "officers.json")
    asked = ["officer", "list", "--federation", "cardio", "--threshold", str(threshold), *given, "--out", out]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == 78, result.output
    assert not Path(out).exists()
    return result.output


@pytest.mark.parametrize(
    ("name", "key", "field"), [("anna", "deadbeef", "verify_key"), ("Anna X", GOOD_KEY, "name")]
)
def test_a_wrong_entry_is_told_by_its_officer_with_what_came(
    tmp_path: Path, name: str, key: str, field: str
) -> None:
    said = listed(tmp_path, (name, "Hospital", key), ("boris", "Clinic", OTHER_KEY))
    assert f"--officer {name}:" in said
    assert f"{field}: expected text like" in said
    assert f"got '{key if field == 'verify_key' else name}'" in said
    assert "sealsum keys show FILE" in said


def test_one_institution_that_would_decide_alone_is_told_the_option_that_allows_it(tmp_path: Path) -> None:
    said = listed(tmp_path, ("anna", "Hospital", GOOD_KEY), ("boris", "hospital", OTHER_KEY))
    assert "--one-institution-decides" in said
    assert "Value error" not in said
