"""Memory of a round through real processes: bounded by parts, however many silos upload."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "streaming_memory.py"
PARAMS = 3_000_000
COHORTS = (3, 6)
PARTS_OF_SLACK = 3
RUN_S = 580


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(RUN_S + 20)
def test_the_servers_memory_does_not_grow_with_the_cohort() -> None:
    command = [sys.executable, str(BENCHMARK), "--params", str(PARAMS), "--json"]
    command += ["--silos", ",".join(map(str, COHORTS))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["params"] >= PARAMS
    few, many = result["runs"]
    assert (few["survivors"], many["survivors"]) == COHORTS
    for server in ("aggregator", "share-server-a", "share-server-b"):
        assert many["peak_mib"][server] - few["peak_mib"][server] < PARTS_OF_SLACK * result["part_mib"], (
            server
        )
