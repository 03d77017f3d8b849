"""The same sum by other frameworks' own code, under an interpreter that has them installed.

    python -m venv /tmp/flower && /tmp/flower/bin/pip install flwr==1.42.0
    python -m venv /tmp/nvflare && /tmp/nvflare/bin/pip install nvflare==2.9.0 tenseal==0.3.18
    python benchmarks/secagg.py --peers-python /tmp/flower/bin/python --peers-python /tmp/nvflare/bin/python

``secagg.py`` starts this script; it prints JSON, a row for each framework installed. Neither it nor the
modules ``secagg_peer_*`` know Sealsum. Each peer runs in one process, on the updates of ``secagg.py``, every
weight the same and nobody dropping out; figures are medians over the repetitions after one to warm up.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from secagg_heap import keep_freed_memory
from secagg_updates import exact, updates_of

PEERS = {
    "flower_secagg_plus": ("flwr", "secagg_peer_flower"),
    "nvflare_ckks": ("nvflare", "secagg_peer_nvflare"),
}
"""Row → distribution, and the module here that runs it."""


def measure(name: str, params: int, silos: int, repeats: int) -> dict[str, Any]:
    """One row: what ``play`` of the peer's module reports of each repetition, and its largest error.

    Raises:
        SystemExit: the sum is wrong.
    """
    distribution, module = PEERS[name]
    play: Callable[[list[Any]], dict[str, Any]] = importlib.import_module(module).play
    updates = list(updates_of(params, silos).values())
    oracle = exact(updates)
    runs, error = [], 0.0
    for repetition in range(repeats + 1):
        run = play(updates)
        error = max(error, float(abs(run.pop("total") - oracle).max()))
        if repetition:
            runs.append(run)
    if not error < 1e-2:
        raise SystemExit(f"{name}: wrong sum: off by {error:g}")
    row: dict[str, Any] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    for key in ("up_bytes", "down_bytes"):
        row[f"{key}_per_param"] = row.pop(key) / params
    return {"version": version(distribution), **row, "max_error": error}


def main() -> None:
    """Measure every peer that is installed here, and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", type=int, required=True)
    parser.add_argument("--silos", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    options = parser.parse_args()
    keep_freed_memory()
    rows = {
        name: measure(name, options.params, options.silos, options.repeats)
        for name, (package, _) in PEERS.items()
        if importlib.util.find_spec(package)
    }
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
