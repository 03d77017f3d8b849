"""A researcher's words before a data protection officer: they are shown as words, whatever is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from privacy.query_terms import CountStatistic, HistogramStatistic, StatisticsTerms
from sealsum.cli import cli
from silo_agent.approvals.cost import job_charge
from silo_agent.approvals.stored_jobs import StoredJobs
from tests.approval_world import ApprovingSilo
from tests.attacks.test_fedsgd_attacks import JOB, policy_text
from tests.query_cohort import asked

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


def test_what_the_secure_sum_is_trusted_with_is_said_in_a_number(tmp_path: Path) -> None:
    """A share of the noise alone protects far less than ε says: whoever approves reads how much less."""
    silo = ApprovingSilo(tmp_path / "silo-1", policy_text())
    spec = silo.show(**JOB)
    assert spec.dp is not None
    charge = job_charge(spec)
    assert charge is not None
    alone = charge.fallback_of(spec.rounds)
    assert alone > charge.epsilon_of(spec.rounds)
    assert f"ε_fallback {alone:.3g} instead" in said(silo, "show", "heart")


def test_which_statistics_are_asked_is_said_by_name(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1")
    statistics = (CountStatistic(), HistogramStatistic(column="age", cuts=(50.0,)))
    job = asked(silo.federation, StatisticsTerms(statistics=statistics))
    StoredJobs(silo.state).keep(silo.signed(job))
    assert "with noise: count, histogram of age." in said(silo, "show", job.job)
