"""``sealsum partition``: one public CSV becomes one CSV a simulated silo, a picture of the split and its
numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from privacy.errors import ConfigurationError
from sealsum.partition.csv_rows import Named, named_table, read_rows, write_silos
from sealsum.partition.measures import label_divergence, size_variation
from sealsum.partition.picture import ENDINGS, save_split
from sealsum.partition.splits import KINDS, Asked, Partition, SplitKind, partition

SUMMARY = "summary.json"
_ORDERED: tuple[SplitKind, ...] = ("feature_shift", "same_label_feature_shift")
_OF_SOME: dict[str, tuple[SplitKind, ...]] = {
    "alpha": ("dirichlet", "quantity"),
    "shards": ("shards",),
    "by": ("natural",),
    "order": _ORDERED,
}
"""Options that mean something to some kinds alone."""


@click.command("partition")
@click.argument("table", metavar="TABLE.csv", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--kind", type=click.Choice(KINDS), required=True, help="How records are dealt to silos.")
@click.option("--label", required=True, help="The column of classes.")
@click.option("--threshold", type=float, help="Two classes: the label's number is above it, or not.")
@click.option("--silos", type=click.IntRange(2, 1000), default=4, show_default=True)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Public; same seed, same split."
)
@click.option("--alpha", type=float, default=0.5, show_default=True, help="Of dirichlet and quantity.")
@click.option(
    "--shards", type=click.IntRange(1), default=2, show_default=True, help="Of shards: how many a silo."
)
@click.option("--least", type=click.IntRange(1), default=1, show_default=True, help="Records of every silo.")
@click.option("--by", metavar="COLUMN", help="Of natural: the column that says whose each record is.")
@click.option(
    "--order",
    metavar="COLUMN",
    help="Of both feature shifts: the column that orders records.  [default: first principal component]",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for silo-1.csv, …"
)
@click.option(
    "--format", "ending", type=click.Choice([one[1:] for one in ENDINGS]), default="png", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    table: Path,
    kind: SplitKind,
    label: str,
    threshold: float | None,
    silos: int,
    seed: int,
    alpha: float,
    shards: int,
    least: int,
    by: str | None,
    order: str | None,
    out: Path,
    ending: str,
    as_json: bool,
) -> None:
    """Split TABLE.csv among simulated silos, to teach and to try algorithms on.

    For public or made-up records only: one file that holds all silos' records is what a federation exists to
    avoid, and nothing here is charged to a budget.
    """
    _refuse_others_options(kind)
    if threshold is not None and kind == "concept_shift":
        raise ConfigurationError(
            "concept_shift: expected classes by name to turn labels; leave --threshold out"
        )
    rows = read_rows(table)
    named = named_table(rows, label, threshold, order, by, kind in _ORDERED)
    split = partition(named.table, Asked(kind, silos, seed, alpha, shards, least))
    paths = write_silos(rows, named, split, label, out)
    picture = out / f"split.{ending}"
    save_split(named.table, split, named.classes, named.order, picture)
    report = summary(named, split, label)
    report |= {"files": [str(path) for path in paths], "picture": str(picture)}
    (out / SUMMARY).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    for silo in report["silos"]:
        spread = ", ".join(f"{name}: {count}" for name, count in silo["classes"].items())
        click.echo(f"{silo['silo']}: {silo['records']} records ({spread})")
    click.echo(f"label skew (JSD / log K): {report['label_divergence']:.3f}")
    click.echo(f"size skew (CV of n): {report['size_variation']:.3f}")
    click.echo(f"{out}: {len(paths)} tables, {picture.name} and {SUMMARY}")


def _refuse_others_options(kind: SplitKind) -> None:
    """Refuse an option that was given and would change nothing.

    Raises:
        UsageError: there is one.
    """
    context = click.get_current_context()
    for name, kinds in _OF_SOME.items():
        given = context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)
        if given and kind not in kinds:
            raise click.UsageError(
                f"--{name}: expected it with --kind {' or '.join(kinds)}, got {kind}; leave it out"
            )


def summary(named: Named, split: Partition, label: str) -> dict[str, Any]:
    """The split's settings and numbers, for JSON."""
    asked, counts = split.asked, split.counts(named.table)
    settings: dict[str, Any] = {
        "kind": asked.kind,
        "silos": asked.silos,
        "seed": asked.seed,
        "least": asked.least,
    }
    if asked.kind in ("dirichlet", "quantity"):
        settings["alpha"] = asked.alpha
    if asked.kind == "shards":
        settings["shards"] = asked.shards
    if asked.kind in _ORDERED:
        settings["order"] = named.order
    silos = []
    for silo, held in enumerate(split.rows):
        one: dict[str, Any] = {
            "silo": f"silo-{silo + 1}",
            "records": len(held),
            "classes": dict(zip(named.classes, counts[silo].tolist(), strict=True)),
        }
        if split.turned:
            one["labels_turned_by"] = split.turned[silo]
        if asked.kind == "natural" and named.table.groups is not None:
            one["groups"] = [named.groups[group] for group in sorted(set(named.table.groups[held].tolist()))]
        silos.append(one)
    return {
        "split": settings,
        "label": label,
        "silos": silos,
        "label_divergence": float(f"{label_divergence(counts):.6g}"),
        "size_variation": float(f"{size_variation(counts.sum(axis=1)):.6g}"),
    }
