"""The suite as a whole, and the command: what it prints, writes and ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sealsum import audit_commands
from sealsum.attack.effort import SuiteName
from sealsum.attack.outcome import Findings, Outcome, Strip
from sealsum.attack.suite import ATTACKS, Attack, Result, run_suite
from sealsum.cli import cli


def _outcome(protected: bool, succeeded: bool) -> Outcome:
    return Outcome("canaries", "σ = 1 & more", protected, succeeded, "ε ≥ 4.06", "claim ε = 4.38", _FIGURES)


_FIGURES = {"epsilon_at_least": 4.06, "epsilon_claimed": 4.38}


def _result(*outcomes: Outcome) -> Result:
    strip = Strip("originals", np.zeros((3, 8, 8)))
    return Result("quick", ((ATTACKS[0], Findings(outcomes, (strip,))),), 1.25)


@pytest.mark.parametrize(
    ("protected", "succeeded", "verdict", "as_expected"),
    [
        (True, False, "consistent", True),
        (True, True, "VIOLATED", False),
        (False, True, "succeeds", True),
        (False, False, "NO POWER", False),
    ],
)
def test_a_verdict_says_both_of_protection_and_attack(
    protected: bool, succeeded: bool, verdict: str, as_expected: bool
) -> None:
    outcome = _outcome(protected, succeeded)
    assert (outcome.verdict, outcome.as_expected) == (verdict, as_expected)


def test_one_outcome_that_is_not_as_it_must_be_spoils_the_suite() -> None:
    good, bad = _outcome(True, False), _outcome(False, False)
    assert _result(good).ok
    assert not _result(good, bad).ok


@pytest.mark.parametrize("succeeded", [False, True])
def test_the_command_ends_with_what_the_attacks_came_to(
    succeeded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(suite: SuiteName, announce: Callable[[Attack], None], job: object) -> Result:
        announce(ATTACKS[0])
        return _result(_outcome(True, succeeded))

    monkeypatch.setattr(audit_commands, "run_suite", run)
    out = tmp_path / "attack"
    done = CliRunner().invoke(cli, ["audit", "attack", "--out", str(out), "--json"])
    assert done.exit_code == (5 if succeeded else 0)
    printed = json.loads(done.stdout)
    assert printed == json.loads((out / "attack.json").read_text(encoding="utf-8"))
    assert printed["ok"] is not succeeded
    assert printed["attacks"][0]["verdict"] == ("VIOLATED" if succeeded else "consistent")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "σ = 1 &amp; more" in page
    assert "<script" not in page
    assert (out / "attack.png").read_bytes().startswith(b"\x89PNG")


def test_results_of_an_earlier_run_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "attack.json").write_text("{}", encoding="utf-8")
    done = CliRunner().invoke(cli, ["audit", "attack", "--out", str(tmp_path)])
    assert done.exit_code == 78
    assert "attack.json exists and is not replaced" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)  # about 50 s of CPU time, on machines that others use too
def test_every_attack_succeeds_with_its_protection_off_and_fails_with_it_on() -> None:
    announced: list[str] = []
    result = run_suite("quick", lambda attack: announced.append(attack.title))
    assert {one.attack: one.verdict for one in result.outcomes if not one.as_expected} == {}
    assert announced == [attack.title for attack in ATTACKS]
    for _, findings in result.parts:
        assert {one.protected for one in findings.outcomes} == {True, False}
