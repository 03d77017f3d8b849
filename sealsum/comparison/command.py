"""``sealsum compare``: pooled, local and federated training on one partition, in memory, in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from privacy.errors import ConfigurationError
from sealsum.algorithms import CATALOGUE
from sealsum.comparison.picture import save_comparison
from sealsum.comparison.report import report_of, table_of
from sealsum.comparison.runs import LOCAL, POOLED, Run, alone, federated, job_under, known_algorithms
from sealsum.job_file import JobFile
from sealsum.partition.splits import SplitKind
from sealsum.simulator.options import Source, job_of, source_of, source_options


@click.command("compare")
@source_options
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    metavar="NAME",
    help="One of the catalogue's; may be repeated.  [default: all, with DP if the job has it, else without]",
)
@click.option("--rounds", type=click.IntRange(1, 10_000), help="[default: the job's]")
@click.option(
    "--seeds",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="Each with other held-out records and another first model.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    type=float,
    help="Of the first figure, for rounds-to-target; may be repeated.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it: .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    job: Path | None,
    tables: tuple[Path, ...],
    hospitals: bool,
    split: SplitKind | None,
    silos: int,
    alpha: float,
    shards: int,
    least: int,
    seed: int,
    algorithms: tuple[str, ...],
    rounds: int | None,
    seeds: int,
    targets: tuple[float, ...],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Train JOB.yaml on TABLEs by several algorithms, in memory, and compare them.

    For records that may lie in one place. Two thirds of each silo's are trained on, a third is scored; every
    algorithm sees the same. Nothing is signed, sent or charged.
    """
    source = source_of(job, tables, hospitals, split, silos, alpha, shards, least, seed)
    if rounds is not None:
        source.tree["rounds"] = rounds
    own = job_of(source.tree)
    _refuse_without_dp(algorithms, own)
    jobs = _jobs(source.tree, algorithms or known_algorithms(own.dp is not None), bool(algorithms))
    runs = _run(source, own, jobs, seeds)
    report = report_of(runs, source.records.split, targets)
    if plot is not None:
        save_comparison(report, plot)
    if as_json:
        click.echo(json.dumps(report))
        return
    Console().print(table_of(report))
    for row in report["rows"]:
        for failure in row.get("failures", ()):
            click.echo(f"{row['algorithm']}: {failure}", err=True)


def _refuse_without_dp(algorithms: tuple[str, ...], own: JobFile) -> None:
    """Refuse an algorithm that was asked for by name and trains with DP only, where the job has none.

    Raises:
        UsageError: there is one.
    """
    rows = {name: CATALOGUE[name] for name in algorithms if name in CATALOGUE}
    for name, row in rows.items():
        if own.dp is None and row.terms is None:
            raise click.UsageError(
                f"--algorithm {name}: it trains with DP only, and the job has no dp; write dp: in it "
                "(sealsum budget calibrate finds the noise), or leave the algorithm out"
            )


def _jobs(tree: dict[str, Any], algorithms: tuple[str, ...], by_name: bool) -> dict[str, JobFile | str]:
    """Each algorithm's job, or why the catalogue's algorithm cannot train this one.

    Raises:
        ConfigurationError: an algorithm that was asked for by name cannot.
    """
    jobs: dict[str, JobFile | str] = {}
    for name in algorithms:
        try:
            jobs[name] = job_under(tree, name)
        except ConfigurationError as refusal:
            if by_name:
                raise
            jobs[name] = str(refusal)
    return jobs


def _run(source: Source, own: JobFile, jobs: dict[str, JobFile | str], seeds: int) -> list[Run]:
    runs: list[Run] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    rounds = sum(job.rounds for job in jobs.values() if isinstance(job, JobFile))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("rounds", total=seeds * rounds)
        for seed in range(seeds):
            parted = source.records.parted(seed)
            progress.update(bar, description=f"seed {seed}: {POOLED}, {LOCAL}")
            runs += alone(own, parted, seed)
            for name, job in jobs.items():
                if isinstance(job, str):
                    runs.append(Run(name, seed, {}, failure=job))
                    continue
                progress.update(bar, description=f"seed {seed}: {name}")
                runs.append(federated(name, job, parted, seed, lambda: progress.advance(bar)))
    return runs
