"""``sealsum diagnose ask`` and ``show``: the diagnosis of a real federation, from one charged query.

All statistics of silos are asked at once, so one Gaussian mechanism is charged; the answer is kept by the
job's name, and read again for free.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import ValidationError

from privacy.errors import ConfigurationError
from privacy.query_skews import LEAST_HONEST
from sealsum.diagnosis.advice import advise, served_sentences
from sealsum.diagnosis.data import data_report, statistics_for
from sealsum.diagnosis.shown import show_diagnosis
from sealsum.job_file import JobFile, read_job_file
from sealsum.job_judgement import refuse_if_charter_does
from sealsum.job_view import JobView
from sealsum.queries.asked import answer_of
from sealsum.queries.file import NoiseRequest, QueryFile, no_answers
from sealsum.researcher_options import AGGREGATOR, JSON, PROXY, STATE
from sealsum.sdk import Federation, JobHandle
from sealsum.yaml_file import faults_of
from silo_agent.transport import FederationClient

PLOT = click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it: .png, .svg or .pdf."
)


@click.command()
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", help="Of the query.  [default: the job's, with -diagnosis]")
@click.option("--epsilon", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--delta", type=click.FloatRange(0, 1, True, True), default=1e-5, show_default=True)
@click.option("--unit", type=click.Choice(("patient", "record")), default="patient", show_default=True)
@click.option(
    "--noise-shares", type=click.IntRange(1), help="Silos share the noise, each adds one part in so many."
)
@click.option(
    "--patients-at-least",
    "least",
    type=click.IntRange(2),
    required=True,
    help="Public: what every silo has at least; the larger, the more exact the label skew.",
)
@click.option(
    "--patients-at-most", "most", type=click.IntRange(1), required=True, help="Public bound for every silo."
)
@click.option(
    "--min-silos", type=click.IntRange(2), help=f"[default: the job's, and at least {LEAST_HONEST + 1}]"
)
@click.option("--column", "columns", multiple=True, help="Only these columns; fewer are more exact.")
@PLOT
@STATE
@AGGREGATOR
@PROXY
@JSON
def ask(
    job_file: Path,
    name: str | None,
    epsilon: float,
    delta: float,
    unit: Literal["patient", "record"],
    noise_shares: int | None,
    least: int,
    most: int,
    min_silos: int | None,
    columns: tuple[str, ...],
    plot: Path | None,
    state: Path,
    url: str | None,
    proxy: str | None,
    as_json: bool,
) -> None:
    """Ask the silos of JOB.yaml how differently their data are spread, and what that means for training.

    One query, signed, judged and charged like any other. Labels, sizes, columns, gaps and ranges at once.
    """
    job = read_job_file(job_file)
    noise: dict[str, Any] = {"unit": unit, "epsilon": epsilon, "delta": delta}
    if noise_shares is not None:
        noise |= {"model": "distributed", "noise_shares": noise_shares}
    query = query_of(job, name, noise, least, most, min_silos, columns)
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        spec = query.spec(federation.charter)
        refuse_if_charter_does(spec, federation.charter)
        handle = federation.submit(spec, no_answers(spec.model))
        show_diagnosis(_report(handle), plot, as_json)


@click.command()
@click.argument("name", metavar="JOB")
@click.option(
    "--evaluation", metavar="JOB", help="An evaluation with silo_accuracy: tell also how silos are served."
)
@PLOT
@STATE
@AGGREGATOR
@PROXY
@JSON
def show(
    name: str,
    evaluation: str | None,
    plot: Path | None,
    state: Path,
    url: str | None,
    proxy: str | None,
    as_json: bool,
) -> None:
    """Read the answer of a diagnosis that was asked before; nothing is charged again."""
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        report = _report(federation.job(name))
        if evaluation is not None:
            answer = answer_of(federation.job(evaluation), progress=_say)
            report["served"] = answer
            report["advice"]["reasons"] += served_sentences(answer)
        show_diagnosis(report, plot, as_json)


def query_of(
    job: JobFile,
    name: str | None,
    noise: dict[str, Any],
    least: int,
    most: int,
    min_silos: int | None,
    columns: tuple[str, ...] = (),
) -> QueryFile:
    """The query that diagnoses a job's data.

    Args:
        noise: fields of ``NoiseRequest``.

    Raises:
        ConfigurationError: fields that make no query, such as more patients at least than at most.
    """
    try:
        return QueryFile(
            job=name or f"{job.job}-diagnosis",
            purpose=job.purpose,
            dataset=job.dataset,
            data=job.data,
            query=statistics_for(job.data, least, most, columns),
            dp=NoiseRequest(**noise),
            patients_at_most=most,
            scheme=job.scheme,
            min_silos=min_silos or max(job.min_silos, LEAST_HONEST + 1),
            round_deadline_s=job.round_deadline_s,
        )
    except ValidationError as error:
        raise ConfigurationError(f"diagnose:\n{faults_of(error)}") from error


def diagnosis_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What an answer says, with advice.

    Raises:
        ConfigurationError: the query was no diagnosis.
    """
    data = data_report(answer.get("statistics", ()))
    return {
        "source": f"{answer['job']}: {answer['dataset']} at {answer['silos']} silos",
        "privacy": answer["privacy"],
        "data": data,
        "advice": advise(data).report(),
    }


def _report(handle: JobHandle) -> dict[str, Any]:
    return diagnosis_of(answer_of(handle, progress=_say))


def _say(view: JobView) -> None:
    click.echo(f"{view.job}: {view.state}", err=True)
