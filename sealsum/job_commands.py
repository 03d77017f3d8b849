"""``sealsum job``: a researcher submits a job, follows it and fetches its model. Progress goes to stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from privacy.errors import ConfigurationError, PeerFault
from privacy.plan import JobSpec
from sealsum.job_file import read_job_file
from sealsum.job_judgement import refuse_if_charter_does, upload_bytes_by_round
from sealsum.job_list import listed_jobs, print_jobs
from sealsum.job_metrics import sentence, training_curve
from sealsum.job_view import JobView
from sealsum.lazy_group import Lazy, LazyGroup
from sealsum.researcher_options import AGGREGATOR, JSON, PROXY, STATE
from sealsum.sdk import Federation, JobHandle
from silo_agent.models.files import model_file, read_model
from silo_agent.transport import FederationClient


class JobFailed(PeerFault):
    """The job ended without a finished model."""

    kind = "job-failed"


def _connection(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say who dials whom."""
    return STATE(AGGREGATOR(PROXY(command)))


class _Job(LazyGroup):
    """Only a warm-up needs a learning framework."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "warm-up": Lazy("sealsum.warm_up_command:warm_up", "Train the first model on public records.")
    }


@click.group(cls=_Job)
def job() -> None:
    """Submit a job, follow it, fetch its model."""


@job.command()
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path, dir_okay=False))
@_connection
@click.option(
    "--model",
    "model_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Start from this safetensors file instead of the built-in first weights.",
)
@click.option("--wait", is_flag=True, help="Follow the job to its end.")
@JSON
def submit(
    job_file: Path,
    state: Path,
    url: str | None,
    proxy: str | None,
    model_path: Path | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Sign the job that JOB.yaml describes and submit it with its first model."""
    asked = read_job_file(job_file)
    if model_path is not None and asked.initial_model is not None:
        raise ConfigurationError(f"--model: expected none: {job_file} names initial_model; leave one out")
    if model_path is not None and asked.public_data is not None:
        asked.public_data.must_have_warmed(model_path)
    initial = asked.first_model() if model_path is None else read_model(model_path, asked.terms())
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        spec = asked.spec(federation.charter, initial)
        refuse_if_charter_does(spec, federation.charter)
        handle = federation.submit(spec, initial)
        uploads = upload_bytes_by_round(spec, federation.charter)
        view = _follow(handle) if wait else handle.now()
    _print(view, spec, uploads, as_json)
    if view.state == "failed":
        raise JobFailed(f"job {view.job} failed: {view.reason}")


@job.command("list")
@_connection
@click.option("--open", "only_open", is_flag=True, help="Only those that wait or run.")
@JSON
def list_jobs(state: Path, url: str | None, proxy: str | None, only_open: bool, as_json: bool) -> None:
    """List the federation's jobs, oldest first: who asked, for what, and where each stands."""
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        print_jobs(listed_jobs(federation.client), only_open, as_json)


@job.command()
@click.argument("name", metavar="JOB")
@_connection
@click.option("--wait", is_flag=True, help="Follow the job to its end.")
@JSON
def show(name: str, state: Path, url: str | None, proxy: str | None, wait: bool, as_json: bool) -> None:
    """Show where a job stands, round by round."""
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        handle = federation.job(name)
        uploads = upload_bytes_by_round(handle.spec, federation.charter)
        view = _follow(handle) if wait else handle.now()
    _print(view, handle.spec, uploads, as_json)


@job.command()
@click.argument("name", metavar="JOB")
@_connection
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="safetensors file to write."
)
def model(name: str, state: Path, url: str | None, proxy: str | None, out: Path) -> None:
    """Fetch a finished job's model, check its digest and write it."""
    if out.exists():
        raise ConfigurationError(f"{out}: exists already; choose another file")
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        handle = federation.job(name)
        vector = handle.model()
    terms = handle.spec.model
    out.write_bytes(model_file(terms, vector, {"job": name, "architecture": terms.architecture}))
    click.echo(f"{out}: {terms.parameters} parameters", err=True)


def _follow(handle: JobHandle) -> JobView:
    view = handle.now()
    for view in handle.watch():
        words = f"round {view.round} of {view.rounds}, {view.openings} opened, {len(view.refusals)} refusals"
        curve = training_curve(handle.spec, view.history[-1:])
        asked = [view.readiness.sentence] if view.state == "waiting" and view.readiness else []
        click.echo("; ".join([f"{view.job}: {view.state}, {words}", *asked, *map(sentence, curve)]), err=True)
    return view


def _print(view: JobView, spec: JobSpec, uploads: Mapping[int, int], as_json: bool) -> None:
    curve = {point.round: point for point in training_curve(spec, view.history)}
    if as_json:
        points = [{"round": number, **point.metrics} for number, point in curve.items()]
        most = max(uploads.values(), default=None)
        more: dict[str, Any] = {"curve": points} if points else {}
        more["upload_bytes_per_round"] = most
        if len(uploads) > 1:
            more["upload_bytes_from_round"] = {str(number): size for number, size in uploads.items()}
        click.echo(json.dumps(view.model_dump(mode="json") | more))
        return
    click.echo(f"{view.job}: {view.state}, round {view.round} of {view.rounds}")
    for number, size in uploads.items():
        since = "" if len(uploads) == 1 else f" from round {number} on"
        click.echo(f"  each silo uploads {size} bytes a round{since}")
    if view.reason:
        click.echo(f"  reason: {view.reason}")
    if view.readiness is not None:
        click.echo(f"  silos: {view.readiness.sentence}")
    for ended in view.history:
        who = ", ".join(ended.survivors) or "nobody"
        said = f"  round {ended.round}: {ended.outcome} ({who}) {ended.reason}".rstrip()
        click.echo(f"{said}; {sentence(curve[ended.round])}" if ended.round in curve else said)
    for refusal in view.refusals:
        click.echo(f"  round {refusal.round}: {refusal.silo} refused, {refusal.rule}: {refusal.sentence}")
    for silo, turnout in sorted(view.turnout.items()):
        click.echo(f"  {silo}: {turnout.sentence(view.round + 1)}")
    click.echo(f"  model: {view.model}")
