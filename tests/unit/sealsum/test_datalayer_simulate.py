"""Simulations start where a job does: from the file that it names, wherever they are run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privacy.errors import ConfigurationError
from sealsum.cli import cli
from sealsum.comparison.runs import first_model
from sealsum.job_file import read_job_file
from sealsum.job_tree import read_tree
from sealsum.simulator.options import job_of
from silo_agent.models.files import model_file, read_notes
from tests.unit.sealsum.test_datalayer_warm_up import job_in, warmed

STARTS = "initial_model: first.safetensors\n"


def test_a_simulation_starts_from_the_warm_model_whatever_its_seed(tmp_path: Path) -> None:
    path = job_in(tmp_path, STARTS)
    assert warmed(path, tmp_path / "first.safetensors").exit_code == 0
    job = job_of(read_tree(path))
    named = read_job_file(path).first_model()
    assert np.array_equal(first_model(job, 0), named)
    assert np.array_equal(first_model(job, 3), named)
    with pytest.raises(ConfigurationError, match="expected the file that sealsum job warm-up made"):
        first_model(job.model_copy(update={"initial_model": None}), 3)


@pytest.mark.parametrize("turned", [1, -1])
def test_the_command_trains_on_from_the_file(tmp_path: Path, turned: int) -> None:
    path = job_in(tmp_path, STARTS)
    model = tmp_path / "first.safetensors"
    assert warmed(path, model).exit_code == 0
    asked = read_job_file(path)
    notes = dict(read_notes(model))
    model.write_bytes(model_file(asked.terms(), np.float32(turned) * asked.first_model(), notes))
    faint = "local_steps: 5, learning_rate: 0.000001"
    path.write_text(path.read_text().replace("local_steps: 5, learning_rate: 0.5", faint))
    options = ["--split", "iid", "--silos", "3", "--rounds", "1", "--without-masks", "--json"]
    result = CliRunner().invoke(cli, ["simulate", str(path), str(tmp_path / "public.csv"), *options])
    assert result.exit_code == 0, result.output
    right = json.loads(result.stdout)["final"]["accuracy"]["together"]
    assert right > 0.9 if turned == 1 else right < 0.1
