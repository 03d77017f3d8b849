"""``sealsum simulate``: a job's rounds with many silos in one process, masked and opened for real."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import PartyId, SiloId
from sealsum.comparison.runs import Run, federated
from sealsum.partition.splits import SplitKind
from sealsum.simulator.buffered import Buffer
from sealsum.simulator.options import job_of, source_of, source_options
from sealsum.simulator.regions import Regions
from sealsum.simulator.sums import plain_ring_sum, secure_ring_sum


@click.command("simulate")
@source_options
@click.option("--rounds", type=click.IntRange(1, 10_000), help="[default: the job's]")
@click.option("--without-masks", is_flag=True, help="Add the same encodings unmasked: faster, the same sum.")
@click.option(
    "--region",
    "regions",
    metavar="NAME=SILO,SILO,…",
    multiple=True,
    help="Silos share with servers of their region, whose shares go up; repeat it for each region.",
)
@click.option(
    "--region-least",
    type=click.IntRange(2, 1000),
    default=2,
    show_default=True,
    help="Fewest silos of a region; one with fewer passes nothing up.",
)
@click.option(
    "--buffer",
    type=click.IntRange(2, 1000),
    help="Open a sum as soon as so many updates are there, whatever model each silo began from; no DP.",
)
@click.option(
    "--pace",
    "paces",
    metavar="SILO=TIME",
    multiple=True,
    help="How long a silo takes to train, in times of the others; with --buffer.",
)
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
    rounds: int | None,
    without_masks: bool,
    regions: tuple[str, ...],
    region_least: int,
    buffer: int | None,
    paces: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train JOB.yaml on TABLEs, one a silo, in this process.

    Silos train by the agent's own code; updates are encoded, shared, sealed to the share servers and opened
    as in a round of `additive`. Two thirds of each silo's records are trained on, a third is scored. Nothing
    is signed, sent or charged: for records that may lie in one place.
    """
    source = source_of(job, tables, hospitals, split, silos, alpha, shards, least, seed)
    if rounds is not None:
        source.tree["rounds"] = rounds
    own = job_of(source.tree)
    if own.scheme != "additive":
        raise ConfigurationError(f"scheme: expected additive, the one that is simulated, got {own.scheme}")
    parted = source.records.parted(seed)
    if regions and without_masks:
        raise ConfigurationError("--without-masks: expected it without --region, whose shares are masked")
    add = plain_ring_sum if without_masks else secure_ring_sum
    grouped = _regions(regions, region_least, parted) if regions else None
    if buffer is not None and regions:
        raise ConfigurationError("--buffer: expected it without --region")
    if paces and buffer is None:
        raise ConfigurationError("--pace: expected it with --buffer; a round waits for all otherwise")
    pending = None if buffer is None else Buffer(buffer, _paces(paces))
    run = federated(own.training.algorithm, own, parted, seed, add=add, regions=grouped, buffer=pending)
    if run.failure:
        raise SealsumError(f"simulation: {run.failure}")
    report = _report(run, len(parted), not without_masks)
    if as_json:
        click.echo(json.dumps(report))
    else:
        _print(report)


def _regions(given: tuple[str, ...], least: int, silos: Collection[SiloId]) -> Regions:
    """Which silo is where.

    Raises:
        ConfigurationError: not of the form NAME=SILO,SILO; a silo is in none or in two, or unknown.
    """
    of: dict[SiloId, str] = {}
    for one in given:
        name, _, members = one.partition("=")
        for silo in members.split(","):
            if not name or silo not in silos or silo in of:
                raise ConfigurationError(
                    f"--region: expected NAME=SILO,SILO,… of {', '.join(sorted(silos))}, each once, got {one}"
                )
            of[SiloId(PartyId(silo))] = name
    if missing := sorted(set(silos) - set(of)):
        raise ConfigurationError(f"--region: expected each silo in one, got none for {', '.join(missing)}")
    return Regions(of, least)


def _paces(given: tuple[str, ...]) -> dict[SiloId, float]:
    """Raises ConfigurationError: not of the form SILO=TIME, or a silo twice."""
    pace: dict[SiloId, float] = {}
    for one in given:
        silo, _, time = one.partition("=")
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", time) or silo in pace:
            raise ConfigurationError(f"--pace: expected SILO=TIME, such as slow=4, each once, got {one}")
        pace[SiloId(PartyId(silo))] = float(time)
    return pace


def _report(run: Run, silos: int, masked: bool) -> dict[str, Any]:
    return {
        "algorithm": run.algorithm,
        "silos": silos,
        "rounds": len(run.curve),
        "masked": masked,
        "bytes_up": run.bytes_up,
        "time": run.time,
        "staleness": run.staleness,
        "curve": list(run.curve),
        "final": {
            name: {"mean": one.mean, "together": one.together, "by_silo": dict(one.by_silo)}
            for name, one in run.final.items()
        },
    }


def _print(report: dict[str, Any]) -> None:
    masked = "masked" if report["masked"] else "not masked"
    click.echo(
        f"{report['rounds']} rounds of {report['algorithm']} with {report['silos']} silos, {masked}; "
        f"{report['bytes_up']:,} bytes a silo and round"
    )
    if report["staleness"]:
        click.echo(
            f"a buffer instead of rounds: {report['time']:g} training times, updates "
            f"{report['staleness']:.2f} models old in the mean"
        )
    table = Table("silo", *report["final"])
    for silo in next(iter(report["final"].values()))["by_silo"]:
        scores = (one["by_silo"].get(silo) for one in report["final"].values())
        table.add_row(silo, *("–" if score is None else f"{score:.3f}" for score in scores))
    table.add_row("together", *(f"{one['together']:.3f}" for one in report["final"].values()))
    Console().print(table)
