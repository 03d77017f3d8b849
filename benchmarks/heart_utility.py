"""Reproduce the demo's accuracy figures with the silo agent's own algorithms, over splits and repetitions.

    python benchmarks/heart_utility.py [--splits 5] [--repetitions 20] [--epsilon 3] [--rounds 20]
        [--algorithm dp_fedsgd] [--noise full] [--json]

A split fixes who is held out and the first model; a repetition redraws sampling and noise, which come from
the operating system and cannot be seeded. Secure aggregation is left out: it adds rounding below 1e-7.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privacy.plan import AlgorithmName
from sealsum.demo.baselines import compare, stepped, update_of
from sealsum.demo.baselines_terms import BaselineAnswer, BaselineRequest
from sealsum.demo.job import DemoTerms, demo_terms
from sealsum.demo.options import DEFAULT_EPSILON, DEFAULT_ROUNDS, NoiseName
from sealsum.demo.patients import HOSPITALS, patients_of
from sealsum.demo.scoring import HospitalFiles, auc_of, joined, read_tables
from sealsum.demo.split import split_patients
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS

CLAIMED_GAP = 0.03


def request_for(split: int, terms: DemoTerms, folder: Path) -> BaselineRequest:
    """Write a split's tables and describe it as the demo does."""
    hospitals: dict[str, HospitalFiles] = {}
    for hospital in HOSPITALS:
        tables = split_patients(hospital, patients_of(hospital), split)
        files = HospitalFiles(
            training=folder / f"{hospital.silo}-training.csv",
            held_out=folder / f"{hospital.silo}-held-out.csv",
        )
        files.training.write_bytes(tables.training.csv_bytes())
        files.held_out.write_bytes(tables.held_out.csv_bytes())
        hospitals[hospital.silo] = files
    return BaselineRequest(
        data=terms.data,
        model=terms.model,
        training=terms.training,
        dp=terms.dp,
        vector=terms.vector,
        rounds=terms.rounds,
        seed=split,
        hospitals=hospitals,
    )


def federate(
    terms: DemoTerms, start: NDArray[np.float32], training: dict[str, Records]
) -> NDArray[np.float32]:
    """All rounds of the demo's job: every hospital trains, the mean update is applied: float32[d]."""
    vector, adapter = start, ADAPTERS[terms.model.adapter]
    for _ in range(terms.rounds):
        updates = [
            update_of(Task(terms.model, terms.training, terms.dp, terms.vector, vector, adapter, records))
            for records in training.values()
        ]
        vector = stepped(vector, np.mean(updates, axis=0), terms.training)
    return vector


def measure(
    split: int, repetitions: int, rounds: int, epsilon: float, algorithm: AlgorithmName, noise: NoiseName
) -> tuple[BaselineAnswer, list[float]]:
    """Baselines of one split, and the federated model's AUC on all held-out patients, once a repetition."""
    terms = demo_terms(rounds, epsilon, split, algorithm=algorithm, noise=noise)
    with tempfile.TemporaryDirectory() as folder:
        request = request_for(split, terms, Path(folder))
        training, held_out = read_tables(request.data, request.hospitals)
        everyone = joined(held_out)
        federated = [
            auc_of(terms.model, federate(terms, terms.initial, training), everyone)
            for _ in range(repetitions)
        ]
        return compare(request), federated


def main() -> None:
    """Measure, print a table, and say how often the demo's claims held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=DEFAULT_EPSILON)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    parser.add_argument("--algorithm", choices=("dp_fedsgd", "dp_fedavg"), default="dp_fedsgd")
    parser.add_argument("--noise", choices=("full", "distributed"), default="full")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for split in range(options.splits):
        baselines, federated = measure(
            split, options.repetitions, options.rounds, options.epsilon, options.algorithm, options.noise
        )
        local_only = float(np.mean(list(baselines.local_only_on_all.values())))
        rows.append(
            {
                "split": split,
                "pooled": baselines.pooled_on_all,
                "local_only_mean": local_only,
                "federated_mean": float(np.mean(federated)),
                "federated_min": min(federated),
                "within_gap": float(
                    np.mean([baselines.pooled_on_all - auc < CLAIMED_GAP for auc in federated])
                ),
                "above_local_only": float(np.mean([auc > local_only for auc in federated])),
            }
        )
    names = ("pooled", "local_only_mean", "federated_mean", "federated_min", "within_gap", "above_local_only")
    total = {name: float(np.mean([row[name] for row in rows])) for name in names}
    if options.json:
        print(json.dumps({"options": vars(options), "splits": rows, "mean": total}, indent=2))
        return
    heads = ("split", "pooled", "local", "federated", "worst", "gap<0.03", ">local")
    print(" ".join(f"{head:>9}" for head in heads))
    for title, row in [*((str(row["split"]), row) for row in rows), ("mean", total)]:
        print(" ".join([f"{title:>9}", *(f"{row[name]:9.3f}" for name in names)]))


if __name__ == "__main__":
    main()
