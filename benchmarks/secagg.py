"""Compare what secure aggregation costs with a plaintext sum of the same updates in the same run.

    python benchmarks/secagg.py [--params 1000000] [--silos 8] [--schemes additive,pairwise,bfv,…]
                                [--repeats 5] [--json] [--plot FILE] [--peers-python PYTHON]…

After one round each to warm up, every repetition runs a plaintext round and one round of each scheme
(benchmarks/secagg_rounds.py) on the same updates, one after the other in one thread; figures are medians over
the repetitions, ratios are of medians. Each sum must be the float64 sum of the float32 updates up to
rounding, or nothing is reported. ``validity`` is ``additive`` with its proof on shares.

silo    CPU time of one silo's half of the round. Plaintext: float32 bytes, cut into parts, and the SHA-256
        of each. Schemes: encoding, keys and masks or ciphertexts, SHA-256, signed messages, storing its
        state (pairwise), and opening the sum where the silos do that (bfv, ckks). ``silo_update_cpu_s`` is
        what of it grows with the parameters before anything is sent: encoding, masks or ciphertexts, SHA-256.
server  CPU time of the sum over the cohort. Plaintext: n float32 vectors added part by part. Schemes: all
        that all servers do. Not in it, on either side: comparing each part with its digest, which is given
        apart (server_check_cpu_s).
up      bytes of one silo: parts, sealed secrets, manifests, messages of every step.
down    bytes to one silo: the opened sum (4 bytes a parameter, or as ciphertext) and relayed messages.
peak    memory of one silo and of the largest server process while the round passes, above what it started
        with (benchmarks/secagg_streaming.py: a process each, parts on disk).

``threshold_*`` compute in a process of OpenFHE's beside each party (benchmarks/secagg_workers.py): its CPU
time, to a clock tick, and its peak memory count as that party's. Where no interpreter has OpenFHE they are
skipped by name (``make threshold-he``, or OPENFHE_PYTHON).

Times are in memory: no disk, no network, no TLS; and freed memory stays with the process, for plaintext as
for schemes (benchmarks/secagg_heap.py). ``machine`` names the load meanwhile: neighbours cost cache and
clock. ``--peers-python`` adds the sums of other frameworks installed there (benchmarks/secagg_peers.py), by
name and version, as ratios to the same plaintext round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from secagg_heap import keep_freed_memory
from secagg_place import SUM, Costs, Local, Memory, Opened, Place
from secagg_plot import plot
from secagg_rounds import ROUNDS, plaintext
from secagg_updates import exact, updates_of
from secagg_workers import runnable

from privacy.ids import PartyId, SiloId

HERE = Path(__file__).parent
_FLOAT32_STEP = 2.0**-23


def place_of(updates: dict[SiloId, NDArray[np.float32]]) -> Place:
    """A round in this process, over updates that are there already."""
    costs = Costs()
    return Place(
        silos=tuple(updates),
        params=len(next(iter(updates.values()))),
        values=lambda silo, start, length: updates[silo][start : start + length],
        store=Memory(),
        start=lambda role, measured, script: Local(costs, role, measured, script),
        costs=costs,
    )


def max_error(name: str, place: Place, opened: Opened) -> float:
    """Largest distance of the opened sum from the oracle, part by part.

    Each silo's encoding may move a coordinate by one step of its scale.

    Raises:
        SystemExit: the sum is wrong.
    """
    step = 2.0**-opened.scale_bits if opened.scale_bits else len(place.silos) * _FLOAT32_STEP
    error = 0.0
    for index, start, length in opened.stretches:
        oracle = exact(place.values(silo, start, length) for silo in place.silos)
        error = max(error, float(np.max(np.abs(opened.read(place.store.get(SUM, index)) - oracle))))
        if not error <= len(place.silos) * step:
            raise SystemExit(
                f"{name}: wrong sum: off by {error:g}, at most {len(place.silos) * step:g} is rounding"
            )
    return error


def measure(params: int, silos: int, schemes: Sequence[str], repeats: int) -> dict[str, Any]:
    """Run all rounds ``repeats`` times, after one to warm up; the result as it is written to JSON."""
    updates = {SiloId(PartyId(name)): update for name, update in updates_of(params, silos).items()}
    rounds: dict[str, Callable[[Place], Opened]] = {"plaintext": plaintext}
    rounds |= {scheme: ROUNDS[scheme] for scheme in schemes}
    runs: dict[str, list[Costs]] = {name: [] for name in rounds}
    errors, scales = dict.fromkeys(rounds, 0.0), dict.fromkeys(rounds, 0)
    for repetition in range(repeats + 1):
        for name, play in rounds.items():
            place = place_of(updates)
            opened = play(place)
            errors[name] = max(errors[name], max_error(name, place, opened))
            scales[name] = opened.scale_bits
            if repetition:
                runs[name].append(place.costs)
    machine = {"cpus": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)}
    rows = {name: _row(costs, params) for name, costs in runs.items()}
    for name, peak in _peaks(params, silos, schemes).items():
        rows[name] |= peak
    for name, row in rows.items():
        row |= {"max_error": errors[name], "scale_bits": scales[name]}
    plain = rows.pop("plaintext")
    for row in rows.values():
        add_ratios(row, plain)
    return {
        "params": params,
        "silos": silos,
        "repeats": repeats,
        "machine": machine,
        "plaintext": plain,
        "schemes": rows,
        "peers": {},
    }


def add_ratios(row: dict[str, Any], plain: dict[str, Any]) -> None:
    """CPU time against the plaintext sum of the same run."""
    for party in ("silo", "server"):
        row[f"{party}_cpu_ratio"] = row[f"{party}_cpu_s"] / plain[f"{party}_cpu_s"]


def _row(runs: Sequence[Costs], params: int) -> dict[str, float]:
    def median(of: Callable[[Costs], float]) -> float:
        return statistics.median(of(costs) for costs in runs)

    return {
        "silo_cpu_s": median(lambda costs: costs.of("silo")),
        "silo_update_cpu_s": median(lambda costs: costs.of("update")),
        "silo_encode_cpu_s": median(lambda costs: costs.of("encode")),
        "silo_prove_cpu_s": median(lambda costs: costs.of("prove")),
        "silo_open_cpu_s": median(lambda costs: costs.of("open")),
        "server_cpu_s": median(lambda costs: costs.of("server") - costs.of("check")),
        "server_check_cpu_s": median(lambda costs: costs.of("check")),
        "up_bytes_per_param": median(lambda costs: costs.up_bytes) / params,
        "down_bytes_per_param": median(lambda costs: costs.down_bytes) / params,
    }


def _peaks(params: int, silos: int, schemes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Peak memory of each side of each round, in processes of their own."""
    asked = ["--params", str(params), "--silos", str(silos), "--schemes", ",".join(["plaintext", *schemes])]
    streamed = _json_of([sys.executable, str(HERE / "secagg_streaming.py"), *asked, "--json"])
    return {
        run["scheme"]: {"silo_peak_mib": run["silo_peak_mib"], "server_peak_mib": run["server_peak_mib"]}
        for run in streamed["runs"]
    }


def peers(pythons: Sequence[Path], params: int, silos: int, repeats: int) -> dict[str, Any]:
    """Rows of every peer that one of these interpreters has."""
    asked = ["--params", str(params), "--silos", str(silos), "--repeats", str(repeats)]
    rows: dict[str, Any] = {}
    for python in pythons:
        rows |= _json_of([str(python), str(HERE / "secagg_peers.py"), *asked])
    return rows


def _json_of(command: list[str]) -> dict[str, Any]:
    """What a script prints in its last line; TenSEAL writes warnings of its own before it."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {ran.returncode}\n{ran.stderr}")
    printed: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return printed


def _schemes(text: str) -> list[str]:
    names = text.split(",")
    if len(set(names)) != len(names) or not set(names) <= set(ROUNDS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(ROUNDS)}, each once; got {text!r}")
    return names


def _count(least: int, most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected {least} to {most}, got {text!r}")
        return int(text)

    return count


def print_table(result: dict[str, Any]) -> None:
    """A line for plaintext, each scheme and each peer."""
    heads = ("silo ms", "×", "server ms", "×", "up B", "down B", "silo MiB", "server MiB", "max error")
    print(" ".join([f"{'':>18}", *(f"{head:>10}" for head in heads)]))
    ones = {"silo_cpu_ratio": 1.0, "server_cpu_ratio": 1.0}
    rows = {"plaintext": result["plaintext"] | ones, **result["schemes"], **result["peers"]}
    for name, row in rows.items():
        cells = [
            1e3 * row["silo_cpu_s"],
            row["silo_cpu_ratio"],
            1e3 * row["server_cpu_s"],
            row["server_cpu_ratio"],
        ]
        cells += [row["up_bytes_per_param"], row["down_bytes_per_param"]]
        cells += [row.get("silo_peak_mib", float("nan")), row.get("server_peak_mib", float("nan"))]
        print(f"{name:>18} " + " ".join(f"{cell:10.2f}" for cell in cells) + f" {row['max_error']:10.1e}")


def main() -> None:
    """Measure, then print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", type=_count(2, 10**9), default=1_000_000)
    parser.add_argument("--silos", type=_count(2, 100), default=8)
    parser.add_argument("--schemes", type=_schemes, default=list(ROUNDS))
    parser.add_argument("--repeats", type=_count(1, 1000), default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--peers-python", type=Path, metavar="PYTHON", action="append", default=[])
    options = parser.parse_args()
    options.schemes = runnable(options.schemes)
    if not keep_freed_memory():
        print("this C library gives freed memory back: times include page faults", file=sys.stderr)
    result = measure(options.params, options.silos, options.schemes, options.repeats)
    result["peers"] = peers(options.peers_python, options.params, options.silos, options.repeats)
    for row in result["peers"].values():
        add_ratios(row, result["plaintext"])
    if options.plot:
        plot(result, options.plot)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
