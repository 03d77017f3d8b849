"""``sealsum diagnose simulate``: a diagnosis of tables that lie here, exact, and of rounds of FedAvg on
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privacy.errors import ConfigurationError
from privacy.labels import ClassLabel, Label
from sealsum.diagnosis.advice import advise
from sealsum.diagnosis.data import data_report, exact_answers
from sealsum.diagnosis.drift import drift_of
from sealsum.diagnosis.rounds import rounds_report
from sealsum.diagnosis.shown import show_diagnosis
from sealsum.job_tree import read_tree
from sealsum.partition.splits import SplitKind
from sealsum.simulator.options import job_of, source_of, source_options


@click.command()
@source_options
@click.option(
    "--rounds", type=click.IntRange(0, 10_000), help="Of FedAvg; 0 for the data alone.  [default: the job's]"
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 50),
    default=5,
    show_default=True,
    help="Each with other held-out records and another first model.",
)
@click.option(
    "--threshold",
    type=float,
    default=0.7,
    show_default=True,
    help="Of the first figure: the share of silos that are served worse is told.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it: .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def simulate(
    job: Path | None,
    tables: tuple[Path, ...],
    hospitals: bool,
    split: SplitKind | None,
    silos: int,
    alpha: float,
    shards: int,
    least: int,
    seed: int,
    rounds: int | None,
    seeds: int,
    threshold: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Diagnose TABLEs that lie here under JOB.yaml, exactly, and run some rounds of FedAvg on them.

    For records that may lie in one place. Each silo's model alone, the federated one, a personal one and a
    pooled one are scored on held-out records. Nothing is charged.
    """
    drift = [] if job is None or hospitals else _refused_drift(job, tables)
    source = source_of(job, tables, hospitals, split, silos, alpha, shards, least, seed)
    if rounds is not None:
        source.tree["rounds"] = max(rounds, 1)
    schema = job_of(source.tree).data
    if not isinstance(schema.label, Label | ClassLabel):
        raise ConfigurationError("data.label: expected a label of classes to diagnose its skew")
    data = data_report(exact_answers(schema, source.records.described))
    report: dict[str, Any] = {"source": source.records.split, "drift": drift, "data": data}
    if rounds != 0:
        report["rounds"] = rounds_report(source.tree, source.records, seeds, threshold)
    report["advice"] = advise(data, report.get("rounds")).report()
    show_diagnosis(report, plot, as_json)


def _refused_drift(job: Path, tables: tuple[Path, ...]) -> list[str]:
    """What is beyond a range, which is no fault.

    Raises:
        ConfigurationError: a table does not fit the schema; with everything that does not.
    """
    drift = drift_of(tables, job_of(read_tree(job), str(job)).data)
    faults = [sentence for sentence in drift if " is beyond its range" not in sentence]
    if faults:
        raise ConfigurationError(
            "tables do not fit the job's schema (schema drift):\n  " + "\n  ".join(faults)
        )
    return drift
