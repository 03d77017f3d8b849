"""``sealsum simulate``: the sum of a simulated round is opened through masks, and is the plain one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from privacy.errors import Unprocessable
from sealsum.cli import cli
from sealsum.comparison import simulate_command
from sealsum.simulator.gathered import HOSPITALS_JOB

HOSPITALS = ("simulate", "--hospitals", "--rounds", "2", "--json")


def _run(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_masks_cancel_so_that_the_model_is_the_one_without_them() -> None:
    masked, plain = _run(*HOSPITALS), _run(*HOSPITALS, "--without-masks")
    assert (masked.pop("masked"), plain.pop("masked")) == (True, False)
    assert masked["rounds"] == 2
    assert masked["silos"] == 4
    # Both round to the grid at random, and batches are drawn anew.
    assert masked["curve"] == pytest.approx(plain["curve"], abs=0.05)
    assert set(masked["final"]["accuracy"]["by_silo"]) == {
        "cleveland",
        "hungary",
        "switzerland",
        "va-long-beach",
    }


def test_a_simulation_whose_masked_sum_fails_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Unprocessable("sum: it does not open")

    monkeypatch.setattr(simulate_command, "secure_ring_sum", refuse)
    done = CliRunner().invoke(cli, HOSPITALS)
    assert done.exit_code != 0
    assert "sum: it does not open" in done.output


def test_a_job_of_another_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOSPITALS_JOB, "scheme", "pairwise")
    done = CliRunner().invoke(cli, HOSPITALS)
    assert done.exit_code == 78
    assert "expected additive" in done.output
