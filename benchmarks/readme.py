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

from privacy.secagg.catalogue import PROTOCOLS, SCHEMES
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
        f"ε = {options['epsilon']:g} per hospital, AUC on all held-out patients "
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
    """CPU and bytes of each secure-aggregation scheme against a plaintext sum (benchmarks/secagg.py)."""
    result = _result("secagg")
    carried = " and ".join(f"`{name}`" for name in SCHEMES)
    others = ", ".join(f"`{name}`" for name in PROTOCOLS)
    lines = [
        f"One round of {result['params']:,} parameters and {result['silos']} silos in memory, one thread, "
        "CPU time against a plaintext sum in the same run, on a machine of "
        f"{result['machine']['cpus']} shared cores under load {result['machine']['load_average']:g} "
        "(`python benchmarks/secagg.py`):",
        "",
        "| scheme | silo, ms (× plaintext) | servers, ms (× plaintext) | bytes a parameter up, down "
        "| largest error of a sum |",
        "| --- | --- | --- | --- | --- |",
    ]
    ones = {"silo_cpu_ratio": 1.0, "server_cpu_ratio": 1.0}
    lines += [
        f"| {name} | {1e3 * row['silo_cpu_s']:.1f} ({row['silo_cpu_ratio']:.1f}) "
        f"| {1e3 * row['server_cpu_s']:.1f} ({row['server_cpu_ratio']:.1f}) "
        f"| {row['up_bytes_per_param']:.2f}, {row['down_bytes_per_param']:.2f} | {row['max_error']:.0e} |"
        for name, row in {"plaintext": result["plaintext"] | ones, **result["schemes"]}.items()
    ]
    lines += [
        "",
        f"Servers carry {carried}. {others} exist as protocols with tests, but servers do not carry them "
        "yet, so a policy that names one is refused (`sealsum scheme list`, `docs/protocols.md`).",
    ]
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
    "memory": memory,
    "secagg": secagg,
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
