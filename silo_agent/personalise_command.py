"""``sealsum silo personalise``: make this silo's own model of a job and say what it gains; none is sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from privacy.keystore import load_identity
from silo_agent.algorithm_state import AlgorithmState
from silo_agent.approvals.registry import Registry
from silo_agent.datasets import Datasets
from silo_agent.ledger.books import ledger_unit
from silo_agent.ledger_options import config_option
from silo_agent.models.adapters import assert_layout, find_adapter
from silo_agent.own_policy import load_own_policy
from silo_agent.personal.gains import bench_of, gains_of, personalised
from silo_agent.personal.layers import tensors_of
from silo_agent.personal.left_by_job import left_by_job
from silo_agent.personal.methods import LEARNING_RATE, METHODS, REGULAR_WEIGHT, Choices, local_only
from silo_agent.personal.store import PersonalModels, read_vector
from silo_agent.personal_commands import draw, table_of
from silo_agent.registration import registered_for
from silo_agent.settings import read_settings

JOB = "job"


@click.command(short_help="Fit JOB's model to this silo's own patients.")
@config_option
@click.option("--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest.")
@click.option(
    "--method",
    type=click.Choice([*METHODS, JOB]),
    default="map",
    show_default=True,
    help="How; job is what a job with own parts has left here.",
)
@click.option(
    "--layers",
    default="all",
    show_default=True,
    help="What may move: all, last, or beginnings of tensors' names, such as layer2,layer3.bias.",
)
@click.option(
    "--model",
    "model_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The job's model as a safetensors file; what the agent kept at the job's end if left out.",
)
@click.option(
    "--holdout",
    type=click.FloatRange(0.01, 0.9),
    help="Share of patients to hold out where the job held out none; 0.2 if left out.",
)
@click.option(
    "--prior-width",
    type=click.FloatRange(min=0, min_open=True),
    help="map: the prior's width; chosen by cross-validation if left out.",
)
@click.option(
    "--steps",
    type=click.IntRange(0, 100_000),
    help="fine_tune: steps of descent; chosen by cross-validation if left out.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=LEARNING_RATE,
    show_default=True,
    help="fine_tune: of its steps.",
)
@click.option(
    "--regular-weight",
    type=click.FloatRange(min=0, min_open=True),
    default=REGULAR_WEIGHT,
    show_default=True,
    help="ditto: how strongly it is drawn to the job's model.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the comparison: .png, .svg or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def personalise(
    config: Path,
    asked: str,
    method: str,
    layers: str,
    model_file: Path | None,
    holdout: float | None,
    prior_width: float | None,
    steps: int | None,
    learning_rate: float,
    regular_weight: float,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Fit JOB's model to this silo's own patients, keep it here, and compare it on patients held out.

    It costs no privacy budget, because it stays: 'silo models' lists what is here. A silo that took no part
    in the job gives its model with --model.
    """
    settings, now = read_settings(config), datetime.now(UTC)
    listed = Registry(settings, load_identity(settings.state_dir)).one(asked, now)
    spec = listed.case.spec
    dataset = registered_for(settings.datasets, ledger_unit(load_own_policy(settings)), spec)
    adapter = find_adapter(spec.model.adapter, settings.model_adapters)
    assert_layout(adapter, spec.model)
    models = PersonalModels(settings.state_dir)
    shared = (
        models.shared(spec.digest, spec.model) if model_file is None else read_vector(model_file, spec.model)
    )
    moving = tensors_of(layers, spec.model)
    bench = bench_of(spec, adapter, Datasets().everybody(dataset, spec), shared, holdout, moving)
    choices = Choices(prior_width, steps, learning_rate, regular_weight)
    if method == JOB:
        made = left_by_job(spec, adapter, shared, AlgorithmState(settings.state_dir).memory(spec.digest))
    else:
        made = personalised(bench, next(one for one in METHODS if one == method), choices)
    gains = gains_of(spec, bench, method, layers, made, local_only(bench.place), now)
    path = models.keep(spec.model, made.vector, gains)
    draw([gains], picture)
    if as_json:
        click.echo(json.dumps({"file": str(path), **gains.model_dump(mode="json")}, indent=2))
        return
    Console().print(table_of([gains]))
    click.echo(f"{gains.sentence}\n{gains.holdout}\n{path}: kept here, and sent nowhere.")
