"""Each benchmark starts the way the README starts it: as a file, on a clean clone, with no PYTHONPATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STARTED = sorted(
    file.name
    for file in BENCHMARKS.glob("*.py")
    if "ArgumentParser(" in (text := file.read_text(encoding="utf-8")) and '"__main__"' in text
)


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTED)
def test_a_benchmark_says_what_it_takes(name: str) -> None:
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, BENCHMARKS / name, "--help"], env=bare, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("usage: ")
