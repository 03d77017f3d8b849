"""What simulations on tables side by side are asked of: a job, tables, a split, the four hospitals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from privacy.errors import ConfigurationError
from sealsum.job_file import JobFile
from sealsum.job_tree import read_tree
from sealsum.partition.splits import KINDS, Asked, SplitKind
from sealsum.simulator.gathered import HOSPITALS_JOB, Gathered, gathered, hospitals
from sealsum.yaml_file import faults_of

_INLINE = tuple(kind for kind in KINDS if kind != "natural")


@dataclass(frozen=True)
class Source:
    """A job's tree and silos' records."""

    tree: dict[str, Any]
    records: Gathered


_COUNT, _FROM_0 = click.IntRange(1), click.IntRange(0)
_OPTIONS: Final = (
    click.argument("job", metavar="[JOB.yaml]", required=False, type=click.Path(path_type=Path)),
    click.argument("tables", metavar="[TABLE.csv]...", nargs=-1, type=click.Path(path_type=Path)),
    click.option("--hospitals", is_flag=True, help="The demo's four hospitals, without job and tables."),
    click.option("--split", type=click.Choice(_INLINE), help="Split one table among simulated silos."),
    click.option("--silos", type=click.IntRange(2, 100), default=4, show_default=True, help="Of a split."),
    click.option("--alpha", type=float, default=0.5, show_default=True, help="Of dirichlet and quantity."),
    click.option("--shards", type=_COUNT, default=2, show_default=True, help="Of shards: how many a silo."),
    click.option("--least", type=_COUNT, default=20, show_default=True, help="Records of a silo of a split."),
    click.option("--seed", type=_FROM_0, default=0, show_default=True, help="Of the split; public."),
)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """JOB.yaml and tables, or --hospitals; they become the arguments of ``source_of``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def source_of(
    job: Path | None,
    tables: tuple[Path, ...],
    hospitals_asked: bool,
    split: SplitKind | None,
    silos: int,
    alpha: float,
    shards: int,
    least: int,
    seed: int,
) -> Source:
    """
    Raises:
        ConfigurationError: neither or both of a job and --hospitals; as ``gathered``.
    """
    if hospitals_asked and (job is not None or split):
        raise ConfigurationError(
            "--hospitals: expected alone, got a job, tables or --split as well; leave one of both out"
        )
    if job is None and not hospitals_asked:
        raise ConfigurationError(
            "expected JOB.yaml and tables, or --hospitals, got neither; give one of both"
        )
    if job is None:
        return Source(dict(HOSPITALS_JOB), hospitals())
    tree = read_tree(job)
    asked = None if split is None else Asked(split, silos, seed, alpha, shards, least)
    return Source(tree, gathered(tables, job_of(tree, str(job)).data, asked))


def job_of(tree: dict[str, Any], where: str = "job") -> JobFile:
    """
    Args:
        where: the file that somebody wrote it in, for errors.

    Raises:
        ConfigurationError: the tree makes no job.
    """
    try:
        return JobFile.model_validate(tree)
    except ValidationError as error:
        raise ConfigurationError(f"{where}:\n{faults_of(error)}") from error
