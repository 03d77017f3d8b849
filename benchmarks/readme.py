"""Fill the README's tables from benchmarks/results/ and its help text from the command line.

python benchmarks/readme.py           rewrite README.md
python benchmarks/readme.py --check   exit 1 if README.md is not what would be written
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from sealsum.cli import cli as sealsum

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
WIDTH = 100


def _result(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def utility() -> str:
    """Accuracy of the demo's job over splits and repetitions (benchmarks/heart_utility.py)."""
    result = _result("heart_utility")
    options, mean = result["options"], result["mean"]
    lines = [
        f"Over {options['splits']} splits of the patients and {options['repetitions']} repetitions each, "
        f"ε = {options['epsilon']:g} per hospital by `{options['algorithm']}` with {options['noise']} noise, "
        "AUC on all held-out patients "
        "(`python benchmarks/heart_utility.py`):",
        "",
        "| pooled, no DP | federated, DP | worst federated | mean of local only, same DP "
        "| within 0.03 of pooled | above local only |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| {mean['pooled']:.3f} | {mean['federated_mean']:.3f} | "
        f"{min(row['federated_min'] for row in result['splits']):.3f} | {mean['local_only_mean']:.3f} | "
        f"{mean['within_gap']:.0%} of runs | {mean['above_local_only']:.0%} of runs |",
    ]
    return "\n".join(lines)


def accuracy() -> str:
    """Each way to learn from four silos, on each dataset's hardest split (benchmarks/utility.py)."""
    result = _result("utility")
    lines = [
        f"{result['silos']} silos, δ = {result['delta']:g}, linear models on columns or fixed features; "
        "percent right, or 100 · AUC for heart, mean ± spread over seeds, one seed where no spread is shown "
        "(`python benchmarks/utility.py`; `docs/recipes.md`):",
        "",
        "| dataset, split | method | ε = 1 | ε = 3 | ε = 8 |",
        "| --- | --- | --- | --- | --- |",
    ]
    cells: dict[tuple[str, str], dict[float | None, str]] = {}
    for dataset in dict.fromkeys(row["dataset"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["dataset"] == dataset]
        splits = {row["split"] for row in rows}
        split = next(one for one in ("natural", "label skew", "IID") if one in splits)
        for row in rows:
            if row["split"] in (split, "pooled"):
                spread = f" ± {row['spread']:.1f}" if len(row["scores"]) > 1 else ""
                place = (f"{dataset.replace('_', ' ')}, {split}", row["method"])
                cells.setdefault(place, {})[row["epsilon"]] = f"{row['mean']:.1f}{spread}"
    for (where, method), by_epsilon in cells.items():
        shown = [by_epsilon.get(epsilon, by_epsilon.get(None, "–")) for epsilon in (1.0, 3.0, 8.0)]
        lines.append(f"| {where} | {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def memory() -> str:
    """Peak memory of each process for a large update (benchmarks/streaming_memory.py)."""
    result = _result("streaming_memory")
    lines = [
        f"Peak memory for one round of {result['params']:,} parameters through real processes over HTTPS, "
        "in MiB above the same process after start (`python benchmarks/streaming_memory.py`):",
        "",
        "| silos | aggregator | vector share server | seed share server | upload per silo, MiB |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {run['silos']} | {run['peak_mib']['aggregator']:.0f} | {run['peak_mib']['share-server-a']:.0f} | "
        f"{run['peak_mib']['share-server-b']:.0f} | {run['upload_mib']:.1f} |"
        for run in result["runs"]
    ]
    return "\n".join(lines)


def secagg() -> str:
    """CPU, bytes and memory of each scheme and peer against a plaintext sum (benchmarks/secagg.py)."""
    result = _result("secagg")
    lines = [
        f"One round of {result['params']:,} parameters and {result['silos']} silos in memory, CPU time "
        f"against a plaintext sum in the same run, medians of {result['repeats']}, on a machine of "
        f"{result['machine']['cpus']} shared cores under load {result['machine']['load_average']:g} "
        "(`python benchmarks/secagg.py`, which says what each column counts):",
        "",
        "| scheme | silo, ms (× plaintext) | servers, ms (× plaintext) | bytes a parameter up, down "
        "| peak MiB, silo, server | largest error of a sum |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    ones = {"silo_cpu_ratio": 1.0, "server_cpu_ratio": 1.0}
    rows = {"plaintext": result["plaintext"] | ones, **result["schemes"]}
    rows |= {f"*{_PEERS[name][0]} {row['version']}*": row for name, row in result["peers"].items()}
    lines += [
        f"| {name} | {1e3 * row['silo_cpu_s']:.1f} ({row['silo_cpu_ratio']:.1f}) "
        f"| {1e3 * row['server_cpu_s']:.1f} ({row['server_cpu_ratio']:.1f}) "
        f"| {row['up_bytes_per_param']:.2f}, {row['down_bytes_per_param']:.2f} | {_peaks(row)} "
        f"| {row['max_error']:.0e} |"
        for name, row in rows.items()
    ]
    pairwise = result["schemes"]["pairwise"]
    lines += [
        "",
        "`validity` is `additive` with the proof on shares. Of `pairwise`'s silo time "
        f"{1e3 * pairwise['silo_update_cpu_s']:.1f} ms go into the update; the rest, for keys, signatures "
        f"and Shamir shares, does not grow with it. {_against_peers(result)}",
    ]
    return "\n".join(lines)


_PEERS = {"flower_secagg_plus": ("Flower SecAgg+", "pairwise"), "nvflare_ckks": ("NVFLARE CKKS", "ckks")}
"""Row → its name, and which scheme here does the same kind of thing."""


def _against_peers(result: dict[str, Any]) -> str:
    if not result["peers"]:
        return "No other framework was measured beside them."
    compared = []
    for name, row in result["peers"].items():
        ours = result["schemes"][_PEERS[name][1]]
        cpu, up = (row[key] / ours[key] for key in ("silo_cpu_s", "up_bytes_per_param"))
        peer, scheme = _PEERS[name]
        compared.append(f"{peer} takes {cpu:.1f} × the silo CPU and {up:.1f} × the bytes of `{scheme}`")
    return (
        "Rows in italics run the peer's own code at its defaults (`benchmarks/secagg_peers.py`): "
        f"{'; '.join(compared)}."
    )


def _peaks(row: dict[str, Any]) -> str:
    return f"{row['silo_peak_mib']:.0f}, {row['server_peak_mib']:.0f}" if "silo_peak_mib" in row else "–"


def streaming() -> str:
    """Peak memory of each scheme's sides at two lengths of vector (benchmarks/secagg_streaming.py)."""
    result = _result("secagg_streaming")
    lines = [
        f"Memory is bounded by parts ({result['part_mib']:g} MiB), not by the model: peak of one silo and of "
        "the largest server process in a round, above what it started with "
        "(`python benchmarks/secagg_streaming.py`):",
        "",
        "| scheme | parameters | update, MiB | silo, MiB | server, MiB |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {run['scheme']} | {run['params']:,} | {run['update_mib']:.0f} | {run['silo_peak_mib']:.0f} "
        f"| {run['server_peak_mib']:.0f} |"
        for run in result["runs"]
    ]
    return "\n".join(lines)


def rounds() -> str:
    """Rounds a minute, and a round's cost against as many bare requests (benchmarks/rounds.py)."""
    result = _result("rounds")
    machine, cpu, bare = result["machine"], result["cpu_ms"], result["bare"]
    fsyncs = result["fsyncs"]
    lines = [
        f"{result['rounds']} rounds of one gradient step, {result['silos']} silos, {result['params']:,} "
        f"parameters, real processes over HTTPS on {machine['cpus']} shared cores under load "
        f"{machine['load_average']:g} (`python benchmarks/rounds.py`): {result['rounds_a_minute']} a minute,"
        f" median {result['round_ms']['median']:.0f} ms. A round is {result['requests']} requests; as many"
        f" bare ones of the same sizes take {bare['cpu_ms']:.0f} ms of CPU, the round {cpu['all']:.0f} ms, "
        f"{result['cpu_ratio']:.1f} times as much:",
        "",
        "| a round | aggregator | vector share server | seed share server | a silo |",
        "| --- | --- | --- | --- | --- |",
    ]
    kinds = ("aggregator", "share-server-a", "share-server-b", "silo")
    lines.append(f"| CPU, ms | {' | '.join(f'{cpu[kind]:.0f}' for kind in kinds)} |")
    if fsyncs:
        lines.append(f"| fsyncs | {' | '.join(f'{fsyncs[kind]:.0f}' for kind in kinds)} |")
    return "\n".join(lines)


def load() -> str:
    """A federation under load against plaintext FedAvg over the same stack (benchmarks/load.py)."""
    result = _result("load")
    lines = [
        "Simulated silos over HTTPS with client certificates, silos and servers together on "
        f"{result['machine']['cpus']} shared cores, against plaintext FedAvg over the same client,"
        " server libraries and parts in the same run, its parts on disk (in brackets: only ever in memory). "
        "Beside it MiB/s of the machine, parts over bare TLS and AES-256-GCM, and what the aggregator's "
        "and the share servers' memory grew by (`python benchmarks/load.py`):",
        "",
        "| silos × parameters | rounds | load | round, ms | MiB/s | × time | × CPU | TLS, AES | grew, MiB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in result["cells"].values():
        own, bounds = cell["federated"], cell["limits_mib_per_s"]
        ratios = [(cell["ratio_to_plain"][of], cell["ratio_to_plain_memory"][of]) for of in ("wall", "cpu")]
        grew = ", ".join(f"{server['growth']:g}" for server in own["memory_mib"].values())
        columns = [
            *(cell["rounds"], cell["load_average"], round(own["round_ms"]), own["mib_per_s"]),
            *(f"{plain:.1f} ({memory:.1f})" for plain, memory in ratios),
            f"{bounds['tls_upload']}, {bounds['aes_256_gcm']}",
            grew if cell["rounds"] >= 100 else "–",
        ]
        lines.append(f"| {cell['silos']} × {cell['params']:,} | {' | '.join(map(str, columns))} |")
    return "\n".join(lines)


def steps() -> str:
    """CPU time of a private step by each engine, against a plain one (benchmarks/dp_step.py)."""
    result = _result("dp_step")
    engines = list(next(iter(result["models"].values()))["engines"])
    lines = [
        f"A step of DP-SGD on {result['batch']} records, CPU time over that of a step without privacy in the "
        f"same run, medians of {result['repeats']} on one thread, under load "
        f"{result['machine']['load_average']:.1f}; in brackets the relative error against plain autograd "
        "record by record in float64 (`python benchmarks/dp_step.py`). Silos use `book_keeping` wherever it "
        "knows all layers:",
        "",
        f"| model | parameters | plain, ms | {' | '.join(engines)} |",
        f"| --- | --- | --- |{' --- |' * len(engines)}",
    ]
    for name, row in result["models"].items():
        columns = [
            f"{row['engines'][engine]['ratio']:.2f} ({row['engines'][engine]['error']:.0e})"
            for engine in engines
        ]
        lines.append(f"| {name} | {row['parameters']:,} | {row['plain_ms']:.2f} | {' | '.join(columns)} |")
    return "\n".join(lines)


def help_text() -> str:
    """What the commands say of themselves."""
    blocks = []
    for arguments in ([], ["demo"]):
        shown = CliRunner().invoke(sealsum, [*arguments, "--help"], terminal_width=WIDTH, prog_name="sealsum")
        if shown.exit_code or not shown.output.strip():
            raise SystemExit(
                f"sealsum {' '.join(arguments)} --help: expected help, got exit {shown.exit_code}"
            )
        blocks.append(
            f"```text\n$ {' '.join(['sealsum', *arguments, '--help'])}\n{shown.output.rstrip()}\n```"
        )
    return "\n\n".join(blocks)


BLOCKS: dict[str, Callable[[], str]] = {
    "utility": utility,
    "accuracy": accuracy,
    "memory": memory,
    "secagg": secagg,
    "streaming": streaming,
    "rounds": rounds,
    "load": load,
    "steps": steps,
    "help": help_text,
}


def filled(readme: str) -> str:
    """The README with every marked block replaced by what its source says now."""
    for name, block in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        if len(pattern.findall(readme)) != 1:
            raise SystemExit(f"README.md: expected one {name} block between its begin and end markers")
        text = block()
        readme = pattern.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", readme)  # type: ignore[misc]
    return readme


def main() -> None:
    """Rewrite or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    after = filled(before)
    if options.check:
        sys.exit(0 if after == before else "README.md: not up to date; run: python benchmarks/readme.py")
    path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
