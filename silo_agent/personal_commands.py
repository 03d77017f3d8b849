"""``sealsum silo models|show-model|gains``: this silo's own models, and what they gain. No torch."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from privacy.errors import ConfigurationError
from privacy.ids import Digest
from silo_agent.ledger_options import config_option
from silo_agent.personal.figures import LOCAL_ONLY, PERSONAL, SHARED, Gains
from silo_agent.personal.store import PersonalModels
from silo_agent.settings import read_settings

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
_JOB = click.option(
    "--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest."
)


@click.command(short_help="List this silo's own models.")
@config_option
@_JSON
def models(config: Path, as_json: bool) -> None:
    """List this silo's own models: of which job, by which method, what each gains."""
    kept = PersonalModels(read_settings(config).state_dir).all()
    if as_json:
        click.echo(json.dumps({"models": [one.model_dump(mode="json") for one in kept]}, indent=2))
        return
    table = Table(title="Personal models at this silo")
    for heading in ("job", "method", "layers", "made", "loss, better than its own by", "than the job's by"):
        table.add_column(heading, overflow="fold")
    for one in kept:
        personal = one.models[PERSONAL]
        gained = str(personal.over_local_only["loss"]), str(personal.over_shared["loss"])
        table.add_row(f"{one.job} ({one.job_digest[:8]})", one.method, one.layers, one.made_at[:10], *gained)
    Console().print(table)


@click.command(short_help="Show how one of this silo's own models was made.")
@config_option
@_JOB
@click.option("--method", required=True, help="As 'silo models' lists it.")
@_JSON
def show_model(config: Path, asked: str, method: str, as_json: bool) -> None:
    """Show one of this silo's own models: its file, its tensors, how it was made and what it gains."""
    store = PersonalModels(read_settings(config).state_dir)
    kept = store.one(Digest(_gains_of(store, asked)[0].job_digest), method)
    tensors = {
        name: {"shape": list(one.shape), "norm": float(np.linalg.norm(one))}
        for name, one in kept.tensors.items()
    }
    if as_json:
        said = {"file": str(kept.path), **kept.gains.model_dump(mode="json"), "tensors": tensors}
        click.echo(json.dumps(said, indent=2))
        return
    Console().print(table_of([kept.gains]))
    chosen = ", ".join(f"{name} {value:g}" for name, value in kept.gains.chosen.items())
    click.echo(f"{kept.path}\nmade {kept.gains.made_at} by {method} ({chosen}), layers {kept.gains.layers}")
    for name, one in tensors.items():
        click.echo(f"  {name} {one['shape']}, norm {one['norm']:.4g}")


@click.command(short_help="Show what JOB brought this silo, on patients held out.")
@config_option
@_JOB
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the comparison: .png, .svg or .pdf.",
)
@_JSON
def gains(config: Path, asked: str, picture: Path | None, as_json: bool) -> None:
    """Show what JOB brought this silo: its own model, the job's and personal ones, on patients held out."""
    kept = _gains_of(PersonalModels(read_settings(config).state_dir), asked)
    draw(kept, picture)
    if as_json:
        click.echo(json.dumps({"gains": [one.model_dump(mode="json") for one in kept]}, indent=2))
        return
    Console().print(table_of(kept))
    for one in kept:
        click.echo(one.sentence)
    for told in dict.fromkeys(one.holdout for one in kept):
        click.echo(told)


def _gains_of(store: PersonalModels, asked: str) -> tuple[Gains, ...]:
    """Of one job, by its name or the beginning of its digest.

    Raises:
        ConfigurationError: there is no personal model of it, or the name is several jobs'.
    """
    kept = store.all()
    found = [
        one for one in kept if one.job == asked or (len(asked) >= 8 and one.job_digest.startswith(asked))
    ]
    if len({one.job_digest for one in found}) > 1:
        known = ", ".join(sorted({one.job_digest[:16] for one in found}))
        raise ConfigurationError(f"--job: several jobs are called {asked!r}: give the digest of one: {known}")
    if not found:
        known = ", ".join(sorted({one.job for one in kept})) or "none"
        raise ConfigurationError(
            f"--job: expected a job of which this silo has its own model ({known}), got {asked!r}; make one "
            f"with 'sealsum silo personalise --job {asked}'"
        )
    return tuple(found)


def table_of(kept: Sequence[Gains]) -> Table:
    """The silo's own model, the job's and every personal one; a row each, of one job."""
    metrics = list(kept[0].models[SHARED].figures)
    table = Table(title=f"{kept[0].job}: {kept[0].held_out_patients} patients held out, 95 % intervals")
    for heading in ("model", *metrics, "loss, better than its own by", "than the job's by"):
        table.add_column(heading, overflow="fold")
    rows = [(name, kept[0].models[name]) for name in (LOCAL_ONLY, SHARED)]
    rows += [(f"{PERSONAL}, {one.method}", one.models[PERSONAL]) for one in kept]
    for name, one in rows:
        over = (one.over_local_only.get("loss"), one.over_shared.get("loss"))
        cells = [str(one.figures[metric]) for metric in metrics]
        table.add_row(name, *cells, *("" if gain is None else str(gain) for gain in over))
    return table


def draw(kept: Sequence[Gains], path: Path | None) -> None:
    """Only who asks for a picture needs matplotlib."""
    if path is not None:
        importlib.import_module("silo_agent.personal.picture").save_picture(kept, path)
