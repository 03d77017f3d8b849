"""``sealsum silo evaluate``: how a job's model does on this silo's own patients; nothing of it is sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from privacy.keystore import load_identity
from privacy.plan import ModelTerms
from silo_agent.approvals.registry import Registry
from silo_agent.data.holdout import held_out
from silo_agent.datasets import Datasets
from silo_agent.ledger.books import ledger_unit
from silo_agent.ledger_options import config_option
from silo_agent.models.adapters import assert_layout, build_model, find_adapter
from silo_agent.own_figures import OwnFigure, own_figures
from silo_agent.own_policy import load_own_policy
from silo_agent.personal.store import PersonalModels, read_vector
from silo_agent.registration import registered_for
from silo_agent.settings import SiloSettings, read_settings

_HELD_OUT = "patients whom the job held out, who were trained on nowhere in it"
_EVERYBODY = "all patients here; the job held out nobody, so its model has seen those who took part"


@click.command(short_help="Measure JOB's model on this silo's own patients.")
@config_option
@click.option("--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest.")
@click.option(
    "--model",
    "model_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The job's model as a safetensors file; what the agent kept at the job's end if left out.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Probability from which a patient counts as class 1, or a pixel as part of the mask.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def evaluate(config: Path, asked: str, model_file: Path | None, threshold: float, as_json: bool) -> None:
    """Measure JOB's model on this silo's own patients: on those held out, if the job held out some.

    It costs no privacy budget, because the figures stay here. What others are to see is asked by
    'sealsum query', under noise.
    """
    settings = read_settings(config)
    listed = Registry(settings, load_identity(settings.state_dir)).one(asked, datetime.now(UTC))
    spec = listed.case.spec
    dataset = registered_for(settings.datasets, ledger_unit(load_own_policy(settings)), spec)
    records = Datasets().everybody(dataset, spec)
    kept = spec.training.holdout
    if kept:
        records = records.only(np.flatnonzero(held_out(records.patients, kept)))
    vector = (
        PersonalModels(settings.state_dir).shared(spec.digest, spec.model)
        if model_file is None
        else read_vector(model_file, spec.model)
    )
    scores = _scores(settings, spec.model, vector, records.features)
    figures = own_figures(spec.data.label, records, scores, threshold)
    on = _HELD_OUT if kept else _EVERYBODY
    if as_json:
        plain = {
            name: {"value": one.value} | ({"why_not": one.why_not} if one.why_not else {})
            for name, one in figures.items()
        }
        click.echo(
            json.dumps({"job": spec.job, "on": on, "threshold": threshold, "figures": plain}, indent=2)
        )
        return
    Console().print(_table(spec.job, on, figures))


def _scores(
    settings: SiloSettings,
    terms: ModelTerms,
    vector: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    features: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    adapter = find_adapter(terms.adapter, settings.model_adapters)
    assert_layout(adapter, terms)
    module = build_model(adapter, terms, vector).eval()
    with torch.inference_mode():
        scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = (
            module(torch.from_numpy(features)).double().numpy()
        )
    return scores


def _table(job: str, on: str, figures: dict[str, OwnFigure]) -> Table:
    table = Table(title=f"{job}, here", caption=f"On {on}.")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, one in figures.items():
        table.add_row(name.replace("_", " "), one.why_not if one.value is None else f"{one.value:.4g}")
    return table
