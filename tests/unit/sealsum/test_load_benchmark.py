"""The load benchmark runs a federation and its plaintext baselines to their end, and the models are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "load.py"
RUN_S = 280
ROUNDING = 2e-5


@pytest.mark.slow
@pytest.mark.timeout(RUN_S + 20)
def test_a_federation_under_load_and_its_baselines_end_in_the_same_model() -> None:
    command = [sys.executable, str(BENCHMARK), "--quick", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert ended.returncode == 0, ended.stderr
    (cell,) = json.loads(ended.stdout)["cells"].values()
    for way in ("federated", "plain", "plain_memory"):
        row = cell[way]
        assert 0 <= row["max_error"] < ROUNDING
        assert row["mib_per_s"] > 0
        assert sum(row["cpu_ms"].values()) > 0
    assert set(cell["federated"]["memory_mib"]) == {"aggregator", "share-server-a", "share-server-b"}
    for way in ("plain", "plain_memory"):
        ratio = cell[f"ratio_to_{way}"]
        expected = cell["federated"]["round_ms"] / cell[way]["round_ms"]
        assert ratio["wall"] == pytest.approx(expected, rel=0.01, abs=0.01)
    assert all(speed > 0 for speed in cell["limits_mib_per_s"].values())
