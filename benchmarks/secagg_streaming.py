"""Measure that memory stays bounded by parts: one round of each scheme, each party in a process of its own.

    python benchmarks/secagg_streaming.py [--params N,…] [--silos 3] [--schemes …] [--json]

Parties are forked processes (benchmarks/secagg_place.py) that run the rounds of benchmarks/secagg_rounds.py;
updates are computed stretch by stretch as they are read, parts lie on disk between the parties, and the sum
is checked part by part against the exact one. A side's figure is the peak resident memory (VmHWM) of its
process less its resident memory (VmRSS) at the start, some MiB of which are the program's own pages; Linux
only. ``server`` is the largest of a scheme's servers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from secagg import max_error
from secagg_place import Apart, Disk, Place, Role, Script
from secagg_rounds import ROUNDS, plaintext
from secagg_updates import computed, names_of
from secagg_workers import runnable

from privacy.ids import PartyId, SiloId
from privacy.wire.messages import PART_BYTES

SCHEMES = {"plaintext": plaintext, **ROUNDS}
DEFAULT = {
    "plaintext": (10_000_000, 100_000_000),
    "additive": (10_000_000, 100_000_000),
    "pairwise": (10_000_000, 100_000_000),
    "validity": (1_000_000, 10_000_000),
    "bfv": (1_000_000, 10_000_000),
    "ckks": (1_000_000, 10_000_000),
    "threshold_bfv": (100_000, 1_000_000),
    "threshold_ckks": (100_000, 1_000_000),
}
"""Scheme → parameters."""


def measure(scheme: str, params: int, silos: int) -> dict[str, Any]:
    """One round; peaks of its first silo and of its largest server."""
    started: dict[Role, list[Apart]] = {"silo": [], "server": []}

    def start(role: Role, measured: bool, script: Script) -> Apart:
        party = Apart(script)
        started[role].append(party)
        return party

    with tempfile.TemporaryDirectory(prefix="sealsum-streaming-") as folder:
        cohort = tuple(SiloId(PartyId(name)) for name in names_of(silos))
        place = Place(cohort, params, computed, Disk(Path(folder)), start)
        clock = time.monotonic()
        opened = SCHEMES[scheme](place)
        passed_s = time.monotonic() - clock
        peaks = {role: [party.end() for party in parties] for role, parties in started.items()}
        error = max_error(scheme, place, opened)
    return {
        "scheme": scheme,
        "params": params,
        "silos": silos,
        "silo_peak_mib": round(peaks["silo"][0], 1),
        "server_peak_mib": round(max(peaks["server"]), 1),
        "update_mib": round(4 * params / 2**20, 1),
        "round_s": round(passed_s, 1),
        "max_error": error,
    }


def print_table(runs: list[dict[str, Any]]) -> None:
    """A line for each round."""
    columns = ("scheme", "params", "update_mib", "silo_peak_mib", "server_peak_mib", "round_s")
    for row in [dict(zip(columns, columns, strict=True)), *runs]:
        print(" ".join(f"{row[column]:>16}" for column in columns))


def main() -> None:
    """Measure each scheme at each number of parameters and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", metavar="N,…", help="default: per scheme, up to 10^8")
    parser.add_argument("--silos", type=int, default=3)
    parser.add_argument("--schemes", default=",".join(DEFAULT))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = []
    for scheme in runnable(options.schemes.split(",")):
        lengths = map(int, options.params.split(",")) if options.params else DEFAULT[scheme]
        runs += [measure(scheme, params, options.silos) for params in lengths]
    if options.json:
        print(json.dumps({"part_mib": PART_BYTES / 2**20, "runs": runs}))
    else:
        print_table(runs)


if __name__ == "__main__":
    main()
