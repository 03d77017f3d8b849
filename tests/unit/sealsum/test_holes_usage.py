"""Options that would change nothing, or cannot be meant, are refused before anything is read or trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from sealsum.cli import cli
from silo_agent import job_commands
from tests.approval_world import ApprovingSilo
from tests.unit.sealsum.test_approvals_commands import silo  # noqa: F401 - a fixture


@pytest.mark.parametrize(
    ("kind", "option", "value", "wanted"),
    [
        ("iid", "--alpha", "0.3", "dirichlet or quantity"),
        ("dirichlet", "--shards", "3", "shards"),
        ("shards", "--by", "hospital", "natural"),
        ("natural", "--order", "age", "feature_shift or same_label_feature_shift"),
    ],
)
def test_a_partition_refuses_an_option_of_another_kind(
    tmp_path: Path, kind: str, option: str, value: str, wanted: str
) -> None:
    asked = [
        "partition",
        str(tmp_path / "none.csv"),
        "--kind",
        kind,
        "--label",
        "y",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(cli, [*asked, option, value])
    assert done.exit_code == 2
    assert f"{option}: expected it with --kind {wanted}" in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_compare_refuses_an_algorithm_that_needs_dp_where_the_job_has_none() -> None:
    done = CliRunner().invoke(cli, ["compare", "--hospitals", "--algorithm", "dp_fedsgd"])
    assert done.exit_code == 2
    assert "it trains with DP only, and the job has no dp" in " ".join(done.stderr.replace("│", " ").split())


def test_a_fault_of_a_job_file_is_told_under_its_path(tmp_path: Path) -> None:
    job = tmp_path / "mine.yaml"
    job.write_text("job: x\nrounds: none\n", encoding="utf-8")
    done = CliRunner().invoke(cli, ["compare", str(job), str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])
    assert done.exit_code == 78
    assert f"{job}:" in "".join(done.stderr.split("\n"))


def test_jobs_are_told_in_lines_where_a_table_would_break_words(
    silo: ApprovingSilo,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silo.show()
    for width, headed in ((80, False), (160, True)):
        monkeypatch.setattr(job_commands, "Console", lambda width=width: Console(width=width))
        done = CliRunner().invoke(cli, ["silo", "jobs", "--config", str(silo.config)])
        assert done.exit_code == 0, done.output
        assert ("ε asked of left" in done.output.splitlines()[2]) == headed or not headed
        assert "heart" in done.output
        assert ("heart: waiting" in done.output) != headed
        assert all(len(line) <= width for line in done.output.splitlines())
