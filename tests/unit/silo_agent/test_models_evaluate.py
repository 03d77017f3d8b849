"""A silo's own figures: each label has its own, on the patients that the job held out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privacy.labels import AnyLabel, ClassLabel, Label, MaskLabel, RealLabel, SurvivalLabel
from privacy.measures import auc, concordance, mae
from sealsum.cli import cli
from silo_agent.data.holdout import held_out
from silo_agent.data.records import Records
from silo_agent.datasets import Datasets
from silo_agent.models.files import model_file
from silo_agent.own_figures import own_figures
from tests.approval_world import ApprovingSilo
from tests.unit.silo_agent.test_personal_commands import SHARED, TERMS, shown
from tests.unit.silo_agent.test_personal_commands import silo as silo  # the fixture

SURVIVAL = SurvivalLabel(time="days", event="dead", horizon=9)


@pytest.mark.parametrize(
    ("label", "names"),
    [
        (
            Label(column="num", threshold=0),
            ["accuracy", "auc", "recall", "precision", "f1", "calibration_error"],
        ),
        (ClassLabel(column="kind", categories=("a", "b", "c")), ["accuracy", "macro_f1"]),
        (RealLabel(column="stay", low=0, high=60), ["mae", "rmse"]),
        (MaskLabel(pixels=tuple(f"m{one}" for one in range(16))), ["dice"]),
        (SURVIVAL, ["concordance"]),
    ],
)
def test_each_label_has_its_figures(label: AnyLabel, names: list[str]) -> None:
    drawn = np.random.default_rng(0)
    survival = np.column_stack([drawn.uniform(0, 1, 30), drawn.integers(0, 2, 30)])
    labels = {
        "classes": drawn.integers(0, 3 if isinstance(label, ClassLabel) else 2, 30),
        "real": drawn.uniform(-1, 1, 30),
        "mask": drawn.integers(0, 2, (30, 16)),
        "cox": survival,
    }[label.kind].astype(np.float32)
    classes = 3 if isinstance(label, ClassLabel) else 2
    records = Records(np.zeros((30, 2), dtype=np.float32), labels, classes=classes, kind=label.kind)
    scores = drawn.normal(size=(30, label.outputs))
    figures = own_figures(label, records, scores)
    assert list(figures) == names
    if label.kind == "real":
        assert figures["mae"].value == pytest.approx(30 * mae(scores[:, 0], labels))
    if label.kind == "cox":
        assert figures["concordance"].value == concordance(scores[:, 0], labels[:, 0], labels[:, 1])


def test_a_figure_that_does_not_exist_says_why() -> None:
    one_class = Records(np.zeros((5, 1), dtype=np.float32), np.zeros(5, dtype=np.float32))
    figures = own_figures(Label(column="num", threshold=0), one_class, np.zeros((5, 1)))
    assert figures["auc"].value is None
    assert "expected records of both classes" in figures["auc"].why_not


def test_a_silo_sees_its_figures_on_patients_that_the_job_held_out(
    silo: ApprovingSilo, tmp_path: Path
) -> None:
    job = shown(silo, holdout=0.3)
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_file(TERMS, SHARED, {}))
    said = CliRunner().invoke(
        cli,
        ["silo", "evaluate", "--job", job.job, "--config", str(silo.config), "--model", str(path), "--json"],
        catch_exceptions=False,
    )
    document = json.loads(said.stdout)
    assert document["on"].startswith("patients whom the job held out")
    [dataset] = silo.settings.datasets.values()
    records = Datasets().everybody(dataset, job)
    there = held_out(records.patients, 0.3)
    scores = records.features[there] @ SHARED[:2] + SHARED[2]
    assert document["figures"]["auc"]["value"] == pytest.approx(auc(scores, records.labels[there]))
