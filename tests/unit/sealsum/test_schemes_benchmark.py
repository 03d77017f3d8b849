"""The secure-aggregation benchmark measures rounds that really open the sum, and reports no wrong one."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from privacy.secagg.catalogue import PROTOCOLS, SCHEMES

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def secagg(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the script itself runs: beside its modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("secagg")


def test_every_scheme_opens_the_sum_and_is_compared_with_plaintext(secagg: ModuleType) -> None:
    result = secagg.measure(params=1009, silos=3, schemes=[*SCHEMES, *PROTOCOLS], repeats=1)
    assert set(result["schemes"]) == {*SCHEMES, *PROTOCOLS}
    for name, row in result["schemes"].items():
        assert row["silo_cpu_ratio"] == row["silo_cpu_s"] / result["plaintext"]["silo_cpu_s"]
        assert row["server_cpu_ratio"] == row["server_cpu_s"] / result["plaintext"]["server_cpu_s"]
        assert 0 <= row["max_error"] <= 3 * 2.0 ** -row["scale_bits"]
        assert row["up_bytes_per_param"] > (SCHEMES | PROTOCOLS)[name].bytes_per_parameter


def test_a_wrong_sum_is_not_reported(secagg: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = secagg.ROUNDS["additive"]

    def off_by_one_silo(updates: dict[str, np.ndarray]) -> object:
        return honest(dict(list(updates.items())[1:]))

    monkeypatch.setitem(secagg.ROUNDS, "additive", off_by_one_silo)
    with pytest.raises(SystemExit, match="additive: wrong sum"):
        secagg.measure(params=1009, silos=3, schemes=["additive"], repeats=1)


def test_the_committed_result_covers_every_catalogued_scheme() -> None:
    result = json.loads((BENCHMARKS / "results" / "secagg.json").read_text(encoding="utf-8"))
    assert set(result["schemes"]) == {*SCHEMES, *PROTOCOLS}
    for name, row in result["schemes"].items():
        entry = (SCHEMES | PROTOCOLS)[name]
        assert row["up_bytes_per_param"] == pytest.approx(entry.bytes_per_parameter, rel=0.02)
        assert row["down_bytes_per_param"] == pytest.approx(entry.bytes_down_per_parameter, rel=0.02)
