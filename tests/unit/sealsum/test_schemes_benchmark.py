"""The secure-aggregation benchmarks measure rounds that really open the sum, and report no wrong one."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from privacy.secagg.catalogue import SCHEMES

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PART_MIB = 8


@pytest.fixture
def secagg(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the script itself runs: beside its modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("secagg")


@pytest.fixture
def updates_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("secagg_updates")


def streamed(scheme: str, params: str) -> list[dict[str, Any]]:
    """Rounds of one scheme through processes of their own."""
    script = str(BENCHMARKS / "secagg_streaming.py")
    asked = ["--schemes", scheme, "--params", params, "--silos", "2", "--json"]
    ran = subprocess.run([sys.executable, script, *asked], capture_output=True, text=True, check=True)
    runs: list[dict[str, Any]] = json.loads(ran.stdout)["runs"]
    return runs


@pytest.mark.slow
def test_every_scheme_opens_the_sum_and_is_compared_with_plaintext(secagg: ModuleType) -> None:
    schemes = secagg.runnable(list(secagg.ROUNDS))  # without OpenFHE, those that need none
    result = secagg.measure(params=1009, silos=3, schemes=schemes, repeats=1)
    assert list(result["schemes"]) == schemes
    for row in result["schemes"].values():
        assert row["silo_cpu_ratio"] == row["silo_cpu_s"] / result["plaintext"]["silo_cpu_s"]
        assert row["server_cpu_ratio"] == row["server_cpu_s"] / result["plaintext"]["server_cpu_s"]
        assert row["silo_encode_cpu_s"] <= row["silo_update_cpu_s"] + row["silo_prove_cpu_s"]
        assert (
            row["silo_update_cpu_s"] + row["silo_prove_cpu_s"] + row["silo_open_cpu_s"] <= row["silo_cpu_s"]
        )
        assert 0 <= row["max_error"] <= 3 * 2.0 ** -row["scale_bits"]
        assert row["up_bytes_per_param"] >= 4
        assert row["silo_peak_mib"] > 0
        assert row["server_peak_mib"] > 0


def test_every_catalogued_scheme_is_measured(secagg: ModuleType) -> None:
    assert set(SCHEMES) <= set(secagg.ROUNDS)


def test_a_wrong_sum_is_not_reported(secagg: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = secagg.ROUNDS["additive"]

    def off_by_one_step(place: Any) -> Any:
        opened = honest(place)
        total = np.frombuffer(place.store.get("sum", 0), dtype=np.uint32).copy()
        total[-1] += 2**20
        place.store.put("sum", 0, total.data)
        return opened

    monkeypatch.setitem(secagg.ROUNDS, "additive", off_by_one_step)
    with pytest.raises(SystemExit, match="additive: wrong sum"):
        secagg.measure(params=1009, silos=3, schemes=["additive"], repeats=1)


def test_computed_updates_are_the_same_however_they_are_cut(updates_module: ModuleType) -> None:
    whole = updates_module.computed("silo-000", 0, 1000)
    pieces = [updates_module.computed("silo-000", start, 250) for start in range(0, 1000, 250)]
    assert np.array_equal(whole, np.concatenate(pieces))
    assert np.abs(whole).max() < 1
    assert abs(whole.mean()) < 0.1
    assert not np.array_equal(whole, updates_module.computed("silo-001", 0, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["additive", "pairwise"])
def test_memory_is_bounded_by_parts_however_long_the_vector(scheme: str) -> None:
    short, long = streamed(scheme, f"{3 * 2**21},{12 * 2**21}")
    for side in ("silo_peak_mib", "server_peak_mib"):
        assert long[side] < short[side] + 1.5 * PART_MIB
        assert long[side] < 8 * PART_MIB  # the update itself is 96 MiB


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "short", "long"), [("bfv", 2**18, 2**20), ("ckks", 2**18, 2**20)])
def test_memory_is_bounded_by_parts_of_ciphertexts(scheme: str, short: int, long: int) -> None:
    one, four = streamed(scheme, f"{short},{long}")
    for side in ("silo_peak_mib", "server_peak_mib"):
        assert four[side] < one[side] + 1.5 * PART_MIB


def test_a_peer_that_is_not_installed_has_no_row() -> None:
    installed = [name for name in ("flwr", "nvflare") if importlib.util.find_spec(name)]
    asked = ["--params", "16", "--silos", "2", "--repeats", "1"]
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / "secagg_peers.py"), *asked],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(ran.stdout)) == len(installed)


def test_the_committed_result_covers_every_catalogued_scheme(secagg: ModuleType) -> None:
    result = json.loads((BENCHMARKS / "results" / "secagg.json").read_text(encoding="utf-8"))
    assert set(result["schemes"]) == set(secagg.ROUNDS)
    for name in set(result["schemes"]) & set(SCHEMES):
        row, entry = result["schemes"][name], SCHEMES[name]
        assert row["up_bytes_per_param"] == pytest.approx(entry.bytes_per_parameter, rel=0.02)
        assert row["down_bytes_per_param"] == pytest.approx(entry.bytes_down_per_parameter, rel=0.02)


def test_the_committed_result_says_which_peers_it_measured() -> None:
    result = json.loads((BENCHMARKS / "results" / "secagg.json").read_text(encoding="utf-8"))
    for row in result["peers"].values():
        assert row["version"]
        assert row["silo_cpu_ratio"] == row["silo_cpu_s"] / result["plaintext"]["silo_cpu_s"]


def test_the_committed_streaming_result_shows_memory_flat_in_the_parameters() -> None:
    runs = json.loads((BENCHMARKS / "results" / "secagg_streaming.json").read_text(encoding="utf-8"))["runs"]
    by_scheme: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_scheme.setdefault(run["scheme"], []).append(run)
    for scheme in ("additive", "pairwise", "bfv", "ckks"):
        short, *_, long = sorted(by_scheme[scheme], key=lambda run: int(run["params"]))
        assert long["params"] >= 10 * short["params"]
        for side in ("silo_peak_mib", "server_peak_mib"):
            assert long[side] < short[side] + 1.5 * PART_MIB
