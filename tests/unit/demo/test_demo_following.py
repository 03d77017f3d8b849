"""Standing, screen and byte counts are what agents and servers said, added up."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sealsum.demo.following import Following, refusal_rows
from sealsum.demo.screen import Screen
from sealsum.demo.standing import SiloStanding, Standing, after_events
from sealsum.job_view import JobView

EVENTS = [
    {"event": "round_started", "round": 1},
    {"event": "reserved", "round": 1, "epsilon_job": 0.5},
    {"event": "trained", "round": 1, "train_ms": 12.5},
    {"event": "round_result", "round": 1, "overhead_ms": 40.0, "sent_bytes": 512},
    {"event": "reserved", "round": 2, "epsilon_job": 0.75},
    {"event": "refused", "rule": "budget.job"},
]
VIEW = JobView.model_validate(
    {
        "version": 3,
        "job": "heart-disease",
        "state": "running",
        "round": 2,
        "rounds": 2,
        "openings": 1,
        "model": "0" * 64,
        "initial_model": "0" * 64,
        "refusals": [{"round": 2, "silo": "hungary", "rule": "budget.job", "sentence": "spent"}],
        "history": [
            {"round": 1, "context": "a" * 64, "outcome": "opened", "reason": "", "survivors": ["hungary"]},
            {"round": 2, "context": "b" * 64, "outcome": "aborted", "reason": "too few", "survivors": []},
        ],
    }
)


def test_a_standing_adds_up_what_the_agent_logged() -> None:
    silo = after_events(SiloStanding("hungary"), EVENTS)
    assert silo == SiloStanding("hungary", (0.5, 0.75), (12.5,), (40.0,), (512,), refusals=1)
    assert silo.epsilon == 0.75


def test_an_aborted_round_does_not_count_as_done(tmp_path: Path) -> None:
    log = tmp_path / "hungary.log"
    log.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    standing = Following({"hungary": log}).standing(VIEW)
    assert (standing.finished, standing.openings) == (1, 1)
    assert standing.silos[0].epsilon == 0.75
    assert standing.refusals == refusal_rows(VIEW)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_screen_names_each_hospital_with_what_it_spent(terminal: bool) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=100)
    standing = Standing("running", 1, 2, 1, (SiloStanding("hungary", (0.5,), (1.0,)),), refusal_rows(VIEW))
    with Screen(console, began=0.0) as screen:
        screen.phase("Training")
        screen.show(standing)
        screen.show(standing)
    text = written.getvalue()
    assert "hungary" in text
    assert "0.50" in text
    if not terminal:
        assert text.count("round 1 of 2") == 1
