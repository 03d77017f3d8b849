"""What chaos draws, judges and says; the run itself is many processes, and is run by hand."""

from __future__ import annotations

import itertools
import json

import pytest
from click.testing import CliRunner

from sealsum.chaos.cases import strikes
from sealsum.chaos.command import command
from sealsum.chaos.judging import log_violations, verdict_violations, view_violations
from sealsum.chaos.tally import Tally, quantile
from sealsum.demo.results import Verdict
from sealsum.job_view import JobView

HONEST = {
    "version": 3,
    "job": "chaos-1",
    "state": "finished",
    "round": 2,
    "rounds": 2,
    "openings": 1,
    "model": "0" * 64,
    "initial_model": "0" * 64,
    "history": [
        {"round": 1, "context": "a" * 64, "outcome": "opened", "reason": "", "survivors": ["a", "b", "c"]},
        {"round": 2, "context": "b" * 64, "outcome": "aborted", "reason": "too few", "survivors": []},
    ],
}


def test_the_same_seed_strikes_the_same_parties_in_the_same_order() -> None:
    parties = ("aggregator", "silo")
    first, again = (tuple(itertools.islice(strikes(7, parties), 50)) for _ in range(2))
    assert first == again
    assert {strike.party for strike in first} == set(parties)
    assert {strike.kind for strike in first} == {"kill", "stall"}


def test_an_honest_job_breaks_nothing() -> None:
    assert list(view_violations(JobView.model_validate(HONEST))) == []
    assert list(log_violations({"server": b"1\n"}, {"server": b"1\n2\n"})) == []
    assert list(verdict_violations("chaos-1", Verdict(0, ("ok",)))) == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"state": "running"}, "I7: chaos-1 is running"),
        ({"state": "failed"}, "I7: chaos-1 failed without a reason"),
        ({"openings": 2}, "I4: chaos-1 has 2 openings in 1 opened rounds"),
        ({"history": HONEST["history"][:1]}, "I7: chaos-1 finished with rounds [1]"),  # type: ignore[index]
        ({"history": [{**HONEST["history"][0], "survivors": ["a"]}, HONEST["history"][1]]}, "I2:"),  # type: ignore[index]
        ({"history": [HONEST["history"][0], {**HONEST["history"][1], "reason": ""}]}, "I7: chaos-1 round 2"),  # type: ignore[index]
    ],
)
def test_each_broken_invariant_of_a_report_is_named(change: dict[str, object], broken: str) -> None:
    (said,) = view_violations(JobView.model_validate({**HONEST, **change}))
    assert said.startswith(broken)


def test_a_log_that_was_rewritten_and_evidence_that_does_not_verify_are_named() -> None:
    assert next(log_violations({"server": b"1\n2\n"}, {"server": b"1\n"})).startswith("I5: the log of server")
    assert "no: it was altered" in next(verdict_violations("chaos-1", Verdict(5, ("no: it was altered",))))


def test_figures_are_those_of_the_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([], 0.5)) == (50.0, 99.0, None)


def test_json_has_the_figures_and_every_violation() -> None:
    tally = Tally(3, 1.0, ("kill silo",), 4, 2, 1, 50, 3, (1.0, 2.0), ("I4: twice",))
    said = json.loads(tally.as_json())
    wanted = {
        "cases": 1,
        "seeds": 1,
        "kills": 4,
        "violations": 1,
        "recovery_p50_s": 1.0,
        "recovery_p99_s": 2.0,
    }
    assert wanted.items() <= said.items()
    assert said["violated"] == ["I4: twice"]
    assert tally.table().row_count == 6


def test_help_answers_without_starting_anything() -> None:
    said = CliRunner().invoke(command, ["--help"])
    assert said.exit_code == 0
    assert "sealsum-verify" in said.output
