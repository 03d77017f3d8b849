"""CPU time of a private step by each engine, against a step without privacy in the same run.

    python benchmarks/dp_step.py [--batch 256] [--repeats 9] [--models CNN,MLP] [--device cuda]
                                 [--precision bf16] [--json]

A plain step is forward, backward and gradient of the summed loss of the same records. Steps of all engines
take turns, on one thread, and each one's CPU time is divided by that of the plain step beside it; medians of
that. On a GPU what is measured is wall time, until the device is done; ``--precision`` is book-keeping's, and
the plain step's. What differs from plain autograd, record by record in float64, stands beside as a relative
error.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dp_step_models import MODELS
from numpy.typing import NDArray
from secagg_heap import keep_freed_memory
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.loss import summed_loss
from silo_agent.engines.opacus_ghost import OpacusGhost
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.engines.place import HERE, Place, multiplied, place_for

ENGINES: dict[str, Callable[[nn.Module], StepEngine]] = {
    "book_keeping": BookKeeping,
    "opacus_ghost": lambda module: OpacusGhost(module, torch.float32),
    "opacus_hooks": OpacusHooks,
}
CLIP = 1.0
CHECKED = 32
"""Records whose sum is compared with plain autograd."""
RESULT = Path(__file__).parent / "results" / "dp_step.json"


def measure(name: str, batch: int, repeats: int, place: Place = HERE) -> dict[str, Any]:
    """One model: parameters, milliseconds of a plain step, and each engine's ratio and error."""
    width, build = MODELS[name]
    torch.manual_seed(0)
    module = build().train().to(place.device)
    records = _records(width, batch)
    everything = np.arange(batch)
    plain = copy.deepcopy(module)
    engines = {engine: make(copy.deepcopy(module)) for engine, make in ENGINES.items()}
    for one in engines.values():
        if isinstance(one, BookKeeping):
            one.precision = place.precision
    for one in engines.values():  # the first step of each fetches memory
        one.clipped_sum(records, everything, CLIP)
    _plain_step(plain, records, place)
    plain_s: list[float] = []
    ratios: dict[str, list[float]] = {engine: [] for engine in engines}
    for _ in range(repeats):
        for engine, one in engines.items():
            beside = _spent(place, lambda: _plain_step(plain, records, place))
            plain_s.append(beside)
            spent = _spent(place, lambda one=one: one.clipped_sum(records, everything, CLIP))  # type: ignore[misc]  # a default binds
            ratios[engine].append(spent / beside)
    expected = _one_by_one(module, records)
    return {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "plain_ms": 1e3 * statistics.median(plain_s),
        "engines": {
            engine: {
                "ratio": statistics.median(ratios[engine]),
                "error": _error(one.clipped_sum(records, np.arange(CHECKED), CLIP), expected),
            }
            for engine, one in engines.items()
        },
    }


def _records(width: int, count: int) -> Records:
    random = np.random.default_rng(0)
    features = random.uniform(-1, 1, (count, width)).astype(np.float32)
    return Records(features, (random.random(count) > 0.5).astype(np.float32))


def _plain_step(module: nn.Module, records: Records, place: Place = HERE) -> None:
    """As anybody trains: unlike ``summed_loss``, without the gradient by the records themselves."""
    module.zero_grad()
    features, labels = (torch.from_numpy(one).to(place.device) for one in (records.features, records.labels))
    with multiplied(torch.device(place.device), place.precision):
        logits = module(features).squeeze(-1).float()
    torch.autograd.backward(binary_cross_entropy_with_logits(logits, labels, reduction="sum"))


def _spent(place: Place, step: Callable[[], object]) -> float:
    """Seconds of CPU, or of a GPU and of whoever feeds it."""
    if place.device == "cpu":
        started = time.process_time()
        step()
        return time.process_time() - started
    torch.cuda.synchronize(place.device)
    started = time.perf_counter()
    step()
    torch.cuda.synchronize(place.device)
    return time.perf_counter() - started


def _one_by_one(module: nn.Module, records: Records) -> NDArray[np.float64]:
    exact = copy.deepcopy(module).double()
    parameters = list(exact.parameters())
    total = np.zeros(sum(parameter.numel() for parameter in parameters))
    for row in range(CHECKED):
        found = torch.autograd.grad(summed_loss(exact, records, np.array([row])), parameters)
        gradient = torch.cat([one.flatten() for one in found]).cpu().numpy()
        total += gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    return total


def _error(got: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or auto")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--json", action="store_true", help="print JSON, and keep it for the README")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    load = os.getloadavg()[0]
    place = place_for(options.device, options.precision)
    asked = options.batch, options.repeats, place
    models = {name: measure(name, *asked) for name in options.models.split(",")}
    result = {
        "batch": options.batch,
        "repeats": options.repeats,
        "machine": {"cpus": os.cpu_count(), "load_average": load},
        "place": str(place),
        "models": models,
    }
    if options.json:
        text = json.dumps(result, indent=1)
        if set(models) == set(MODELS) and place == HERE:
            RESULT.write_text(text + "\n", encoding="utf-8")
        print(text)
        return
    for name, row in models.items():
        columns = "   ".join(
            f"{engine} × {of['ratio']:.2f} ({of['error']:.0e})" for engine, of in row["engines"].items()
        )
        print(f"{name:20} {row['parameters']:>9,}   plain {row['plain_ms']:8.2f} ms   {columns}")


if __name__ == "__main__":
    main()
