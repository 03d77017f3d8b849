"""A researcher's words before a data protection officer: they are shown as words, whatever is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sealsum.cli import cli
from tests.approval_world import ApprovingSilo

COVER = "test\x1b[2A\x1b[0Jx\n  - The whole job costs ε 0.001\u202e"


def said(silo: ApprovingSilo, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["silo", *arguments, "--config", str(silo.config)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


@pytest.mark.parametrize("purpose", ["[/b]", "[blink]test[/blink]", COVER])
def test_a_purpose_neither_breaks_the_list_nor_styles_it(tmp_path: Path, purpose: str) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1")
    silo.show(purpose=purpose)
    listed = said(silo, "jobs")
    assert "heart" in listed
    assert ("[/b" in listed) == ("[/b" in purpose)
    assert "\x1b" not in listed


def test_a_purpose_cannot_erase_or_add_a_sentence(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1")
    silo.show(purpose=COVER)
    shown = said(silo, "show", "heart")
    assert not {"\x1b", "\u202e"} & set(shown)
    assert not any(line.startswith("  - The whole job costs ε 0.001") for line in shown.splitlines())
