"""docs/governance.md as written: each of its commands is run, by the shell, in order."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aggregator.enrolment.authority import load_authority
from privacy.roster import Charter
from privacy.wire.charter import open_charter, parse_charter
from tests.enrolment import enrol_all

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
PAGE = Path(__file__).parents[2] / "docs" / "governance.md"


class Shell:
    """Runs a page's blocks with ``sealsum`` being this tree's."""

    def __init__(self, home: Path) -> None:
        self.home = home
        tools = home / "bin"
        tools.mkdir()
        script = tools / "sealsum"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sealsum "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def run(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", commands], cwd=self.home, env=self.environment, capture_output=True, text=True
        )

    def succeed(self, commands: str) -> str:
        done = self.run(commands)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def test_two_hospitals_agree_on_a_change_by_the_pages_own_commands(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    keys, listing, first, policy, removal, rotation = re.findall(
        r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    shell.succeed(keys)
    assert all(stat.S_IMODE((tmp_path / f"{name}.key").stat().st_mode) == 0o600 for name in ("anna", "boris"))
    shell.succeed(listing)
    authority = load_authority(tmp_path / "authority")
    enrol_all(authority)
    shell.succeed(first)

    def charter(number: int) -> Charter:
        endorsed = parse_charter((tmp_path / f"charter-{number}.json").read_bytes())
        return open_charter(endorsed, authority.card.officers, "cardio").charter

    assert len(charter(1).silos) == 4
    said = shell.succeed(policy)
    assert re.search(r"^ +-.*job: 3\.0", said, re.MULTILINE)
    assert re.search(r"^ +\+.*job: 2\.0", said, re.MULTILINE)
    assert charter(2).policy != charter(1).policy
    gone = charter(2).member(charter(2).silos[-1]).verify_key
    assert "Removed, its key revoked for good: hospital-d" in shell.succeed(removal)
    assert charter(3).silos == ("hospital-a", "hospital-b", "hospital-c")
    assert charter(3).revoked == (gone,)
    shell.succeed(rotation)
    assert charter(4).officers != charter(3).officers

    alone = shell.run(
        "sealsum federation propose authority --out proposal-5.json\n"
        "sealsum officer sign proposal-5.json --in-force charter-4.json --key dario.key --out d.sig --yes\n"
        "sealsum federation endorse authority proposal-5.json d.sig"
    )
    assert alone.returncode == 2
    assert "ask one of boris, chiara" in alone.stderr
    left = shell.run(
        "sealsum officer sign proposal-5.json --in-force charter-4.json --key anna.key --out a.sig"
    )
    assert left.returncode == 2
    assert "not that of an officer" in left.stderr
    unread = shell.run("sealsum officer sign proposal-5.json --key boris.key --out b.sig --yes")
    assert unread.returncode == 78
    assert "expected the charter of epoch 4" in unread.stderr
