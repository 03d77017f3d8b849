"""Statistics and an evaluation asked by the command line of real processes over mutual TLS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silo_agent.models.files import model_file
from silo_agent.models.layouts import model_terms
from tests.e2e.test_pairwise_processes import ROOT, Process, _free_port, ended
from tests.federation import Federation, demo_policy_text
from tests.silo_yaml import approving, registered
from tests.unit.silo_agent.loopback import patients

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
PATIENTS = 150
QUERY: dict[str, Any] = {
    "job": "ages",
    "purpose": "test",
    "dataset": "cardio",
    "data": {
        "features": [
            {"kind": "numeric", "column": "age", "low": 0, "high": 100, "impute": 50},
            {"kind": "numeric", "column": "pressure", "low": 0, "high": 300, "impute": 120},
        ],
        "label": {"column": "num", "threshold": 0},
        "patient_id": "patient",
    },
    "query": {
        "kind": "statistics",
        "statistics": [{"kind": "count"}, {"kind": "mean", "column": "age"}, {"kind": "label"}],
    },
    "dp": {"unit": "patient", "epsilon": 0.9, "delta": 1e-5},
    "patients_at_most": 5000,
    "min_silos": 3,
    "scheme": "pairwise",
}


def _sealsum(*command: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "sealsum", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "NO_PROXY": "*"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in command else None


def test_statistics_and_an_evaluation_are_asked_answered_and_drawn(tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{_free_port()}"
    text = demo_policy_text("pairwise").replace("dp_fedavg]", "dp_fedavg, dp_statistics, dp_evaluation]")
    text = text.replace("names: [], dp: withheld", "names: [loss, auc], dp: charged")
    federation = Federation(servers=0, policy_text=text, urls={"aggregator": url})
    federation.identity("aggregator", tmp_path / "aggregator")
    researcher = tmp_path / "researcher"
    federation.identity("researcher", researcher)
    config = tmp_path / "server.yaml"
    config.write_text(f"state_dir: aggregator\nlisten: {url.removeprefix('https://')}\ngrace_s: 60\n")

    def start(number: int) -> Process:
        directory = tmp_path / f"silo-{number}"
        federation.identity(f"silo-{number}", directory / "state")
        (directory / "cardio.csv").write_text(patients(PATIENTS))
        (directory / "own.yaml").write_text(text)
        settings = {
            "state_dir": "state",
            "aggregator_url": url,
            "threat_model": "./own.yaml",
            "worker": {"process": False},
            "datasets": {"cardio": registered()},
            "approval_rules": approving("cardio"),
        }
        (directory / "silo.yaml").write_text(json.dumps(settings))
        log = tmp_path / f"silo-{number}.log"
        return Process(log, "silo", "run", "--config", str(directory / "silo.yaml"))

    terms = model_terms("logistic", 2)
    model = tmp_path / "model.safetensors"
    model.write_bytes(model_file(terms, np.array([2.0, 0.5, 0.1], dtype=np.float32), {}))
    statistics, evaluation = tmp_path / "statistics.yaml", tmp_path / "evaluation.yaml"
    statistics.write_text(json.dumps(QUERY))
    metrics = [{"kind": "loss"}, {"kind": "auc", "bins": 10}]
    asked = {"kind": "evaluation", "adapter": "logistic", "metrics": metrics}
    evaluation.write_text(json.dumps({**QUERY, "job": "metrics", "query": asked}))
    state = ("--state", str(researcher))

    aggregator = Process(tmp_path / "aggregator.log", "aggregator", "serve", "--config", str(config))
    with ended(aggregator):
        aggregator.wait_for("listening", 1)
        silos = [start(number) for number in (1, 2, 3, 4)]
        with ended(*silos):
            answer = _sealsum("query", "submit", str(statistics), *state, "--wait", "--json")
            metric = _sealsum(
                "query", "submit", str(evaluation), *state, "--model", str(model), "--wait", "--json"
            )
            _sealsum("query", "draw", "metrics", *state, "--out", str(tmp_path / "metrics.png"))
            again = _sealsum("query", "show", "ages", *state, "--json")
    count = answer["statistics"][0]["count"]
    assert abs(count["estimate"] - 4 * PATIENTS) < 6 * count["standard_error"]
    assert answer["silos"] == 4
    assert again == answer
    assert [one["kind"] for one in metric["metrics"]] == ["loss", "auc"]
    assert metric["privacy"]["epsilon"] <= 0.9
    assert (tmp_path / "metrics.png").stat().st_size > 10_000
