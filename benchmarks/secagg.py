"""Compare what secure aggregation costs with a plaintext sum of the same updates in the same run.

    python benchmarks/secagg.py [--params 1000000] [--silos 8] [--schemes additive,pairwise,bfv,ckks]
                                [--repeats 5] [--json] [--plot FILE]

Every repetition runs a plaintext round and one round of each scheme (benchmarks/secagg_rounds.py) on the same
updates, one after the other in one thread; figures are medians over the repetitions, ratios are of
medians. Each sum must be the float64 sum of the float32 updates up to rounding, or nothing is reported.

silo    CPU time of one silo's half of the round. Plaintext: float32 bytes, cut into parts, and the SHA-256
        of each. Schemes: encoding, keys and masks or ciphertexts, SHA-256, signed messages, and opening the
        sum where the silos do that (bfv, ckks).
server  CPU time of the sum over the cohort. Plaintext: n float32 vectors added part by part. Schemes: the
        sum halves of all servers together. Not in it, on either side: comparing each part with its digest,
        which is given apart (server_check_cpu_s).
up      bytes of one silo: parts, sealed secrets, manifests, messages of every step.
down    bytes to one silo: the opened sum (4 bytes a parameter, or as ciphertext) and relayed messages.

In memory: no disk, no network, no TLS. ``machine`` names the load meanwhile: neighbours cost cache and clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from secagg_costs import Opened, Updates
from secagg_rounds import ROUNDS, plaintext

from privacy.ids import PartyId, SiloId

_FLOAT32_STEP = 2.0**-23


def updates_of(params: int, silos: int) -> Updates:
    """Made-up updates, uniform in [−1, 1): the same in every run."""
    rng = np.random.default_rng(2024)
    return {
        SiloId(PartyId(f"silo-{index:03}")): rng.uniform(-1.0, 1.0, params).astype(np.float32)
        for index in range(silos)
    }


def exact(updates: Updates) -> NDArray[np.float64]:
    """The oracle: the float64 sum."""
    total: NDArray[np.float64] = np.zeros(len(next(iter(updates.values()))))
    for update in updates.values():
        total += update
    return total


def max_error(name: str, opened: Opened, oracle: NDArray[np.float64], silos: int) -> float:
    """Largest distance from the oracle; each silo's encoding may move a coordinate by one step of its scale.

    Raises:
        SystemExit: the sum is wrong.
    """
    step = 2.0**-opened.scale_bits if opened.scale_bits else silos * _FLOAT32_STEP
    error = float(np.max(np.abs(opened.total - oracle)))
    if not error <= silos * step:
        raise SystemExit(f"{name}: wrong sum: off by {error:g}, at most {silos * step:g} is rounding")
    return error


def measure(params: int, silos: int, schemes: Sequence[str], repeats: int) -> dict[str, Any]:
    """Run all rounds ``repeats`` times; the result as it is written to JSON."""
    updates = updates_of(params, silos)
    oracle = exact(updates)
    rounds: dict[str, Callable[[Updates], Opened]] = {"plaintext": plaintext}
    rounds |= {scheme: ROUNDS[scheme] for scheme in schemes}
    runs: dict[str, list[Opened]] = {name: [] for name in rounds}
    errors = dict.fromkeys(rounds, 0.0)
    for _ in range(repeats):
        for name, play in rounds.items():
            opened = play(updates)
            errors[name] = max(errors[name], max_error(name, opened, oracle, silos))
            runs[name].append(Opened(np.empty(0), opened.scale_bits, opened.costs))
    machine = {"cpus": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)}
    rows = {name: _row(opened, params, errors[name]) for name, opened in runs.items()}
    plain = rows.pop("plaintext")
    for row in rows.values():
        row["silo_cpu_ratio"] = row["silo_cpu_s"] / plain["silo_cpu_s"]
        row["server_cpu_ratio"] = row["server_cpu_s"] / plain["server_cpu_s"]
    return {
        "params": params,
        "silos": silos,
        "repeats": repeats,
        "machine": machine,
        "plaintext": plain,
        "schemes": rows,
    }


def _row(runs: Sequence[Opened], params: int, error: float) -> dict[str, float]:
    def median(piece: str) -> float:
        return statistics.median(run.costs.seconds[piece] for run in runs)

    return {
        "silo_cpu_s": statistics.median(run.costs.silo_s for run in runs),
        "silo_encode_cpu_s": median("encode"),
        "silo_open_cpu_s": median("open"),
        "server_cpu_s": median("server"),
        "server_check_cpu_s": median("check"),
        "up_bytes_per_param": statistics.median(run.costs.up_bytes for run in runs) / params,
        "down_bytes_per_param": statistics.median(run.costs.down_bytes for run in runs) / params,
        "max_error": error,
        "scale_bits": runs[0].scale_bits,
    }


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars: CPU against the plaintext sum (logarithmic), and bytes a parameter."""
    names = list(result["schemes"])
    places = np.arange(len(names))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    cpu, traffic = figure.subplots(1, 2)
    bars = (
        (cpu, "silo_cpu_ratio", "one silo", -0.2),
        (cpu, "server_cpu_ratio", "servers, whole cohort", 0.2),
        (traffic, "up_bytes_per_param", "up", -0.2),
        (traffic, "down_bytes_per_param", "down", 0.2),
    )
    for axes, key, label, offset in bars:
        values = [result["schemes"][name][key] for name in names]
        drawn = axes.bar(places + offset, values, 0.38, label=label)
        axes.bar_label(drawn, fmt="{:.3g}", fontsize=8)
    cpu.set_yscale("log")
    cpu.axhline(1.0, color="black", linewidth=0.8)
    cpu.set_title("CPU time, × plaintext sum", fontsize=10)
    traffic.axhline(4.0, color="black", linewidth=0.8)
    traffic.set_title("bytes a parameter, one silo (line: plaintext)", fontsize=10)
    for axes in (cpu, traffic):
        axes.set_xticks(places, names)
        axes.margins(y=0.15)
        axes.legend(fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{result['params']:,} parameters, {result['silos']} silos", fontsize=10)
    figure.savefig(path, dpi=150)


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
    options = parser.parse_args()
    result = measure(options.params, options.silos, options.schemes, options.repeats)
    if options.plot:
        plot(result, options.plot)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    heads = ("", "silo ms", "×", "server ms", "×", "up B", "down B", "max error")
    print(" ".join(f"{head:>10}" for head in heads))
    ones = {"silo_cpu_ratio": 1.0, "server_cpu_ratio": 1.0}
    for name, row in {"plaintext": result["plaintext"] | ones, **result["schemes"]}.items():
        print(
            f"{name:>10} {1e3 * row['silo_cpu_s']:10.2f} {row['silo_cpu_ratio']:10.1f} "
            f"{1e3 * row['server_cpu_s']:10.2f} {row['server_cpu_ratio']:10.1f} "
            f"{row['up_bytes_per_param']:10.3f} {row['down_bytes_per_param']:10.3f} {row['max_error']:10.1e}"
        )


if __name__ == "__main__":
    main()
