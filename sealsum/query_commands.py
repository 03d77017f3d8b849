"""``sealsum query``: statistics of a federation's data, or metrics of a model on them, under DP.

A query is a job: it is signed, judged by every party, charged by every silo, opened once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from privacy.errors import ConfigurationError
from sealsum.job_judgement import refuse_if_charter_does
from sealsum.job_view import JobView
from sealsum.lazy_group import Lazy, LazyGroup
from sealsum.queries.asked import answer_of
from sealsum.queries.file import QueryFile, no_answers, read_query_file
from sealsum.queries.table import answer_table
from sealsum.researcher_options import AGGREGATOR, JSON, PROXY, STATE
from sealsum.sdk import Federation, JobHandle
from silo_agent.models.files import read_model
from silo_agent.transport import FederationClient


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Who dials whom, and how the answer is shown."""
    return STATE(AGGREGATOR(PROXY(JSON(command))))


class _Query(LazyGroup):
    """Only who asks for a picture needs matplotlib; what compares answers is loaded when it is asked for."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "draw": Lazy("sealsum.queries.draw_command:draw", "Wait for a query's answer and draw it."),
        "forgetting": Lazy(
            "sealsum.queries.forgetting_command:forgetting_of", "Show what models forgot of each class."
        ),
    }


@click.group(cls=_Query)
def query() -> None:
    """Ask for statistics of data, or metrics of a model, under DP."""


@query.command()
@click.argument("query_file", metavar="QUERY.yaml", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--model",
    "model_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Evaluate the model in this safetensors file.",
)
@click.option("--of", "job_name", metavar="JOB", help="Evaluate the final model of this job of yours.")
@click.option("--wait", is_flag=True, help="Wait for the answer and show it.")
@_common
def submit(
    query_file: Path,
    model_path: Path | None,
    job_name: str | None,
    wait: bool,
    state: Path,
    url: str | None,
    proxy: str | None,
    as_json: bool,
) -> None:
    """Sign the query that QUERY.yaml describes and submit it."""
    asked = read_query_file(query_file)
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        weights = _weights(asked, model_path, job_name, federation)
        spec = asked.spec(federation.charter, weights)
        refuse_if_charter_does(spec, federation.charter)
        handle = federation.submit(spec, no_answers(spec.model), weights)
        if not wait:
            click.echo(json.dumps({"job": spec.job}) if as_json else f"{spec.job}: submitted")
            return
        _show(handle, as_json)


@query.command()
@click.argument("name", metavar="JOB")
@_common
def show(name: str, state: Path, url: str | None, proxy: str | None, as_json: bool) -> None:
    """Wait for a query's answer and show it."""
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        _show(federation.job(name), as_json)


def _show(handle: JobHandle, as_json: bool) -> None:
    answer = answer_of(handle, progress=_say)
    if as_json:
        click.echo(json.dumps(answer))
    else:
        Console().print(answer_table(answer))


def _say(view: JobView) -> None:
    click.echo(f"{view.job}: {view.state}", err=True)


def _weights(
    asked: QueryFile, model_path: Path | None, job_name: str | None, federation: Federation
) -> NDArray[np.float32] | None:
    terms = asked.evaluated()
    given = [one for one in (model_path, job_name) if one is not None]
    if len(given) != (0 if terms is None else 1):
        wanted = "neither --model nor --of for statistics" if terms is None else "one of --model and --of"
        raise ConfigurationError(f"query: expected {wanted}, got {len(given)}")
    if terms is None:
        return None
    if model_path is not None:
        return read_model(model_path, terms)
    trained = federation.job(str(job_name))
    if trained.spec.model != terms:
        raise ConfigurationError(
            f"query: expected the model terms of job {job_name} ({trained.spec.model.adapter}, hidden "
            f"{list(trained.spec.model.hidden)}), got {terms.adapter}, hidden {list(terms.hidden)}"
        )
    return trained.model()
