"""``sealsum job warm-up``: train a job's first model on the public records that the job names."""

from __future__ import annotations

import json
from pathlib import Path

import click

from privacy.errors import ConfigurationError
from privacy.update import model_bytes, model_digest
from sealsum.job_file import read_job_file
from sealsum.public_data import NOTE
from sealsum.warm_up import warm_model
from silo_agent.models.files import model_file


@click.command("warm-up")
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="safetensors file to write."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def warm_up(job_file: Path, out: Path, as_json: bool) -> None:
    """Train the first model of JOB.yaml on its public_data, here and before round 1; no silo is asked.

    Name the file as initial_model in JOB.yaml, or give it to sealsum job submit as --model.
    """
    if out.exists():
        raise ConfigurationError(f"{out}: exists already; choose another file")
    asked = read_job_file(job_file)
    warm = warm_model(asked)
    public, terms = asked.public_data, asked.terms()
    if public is None:
        raise TypeError("public_data: expected some once a model was trained on it")
    out.write_bytes(model_file(terms, warm.weights, {"job": asked.job, NOTE: public.digest}))
    report = {
        "job": asked.job,
        "public_data": public.digest,
        "records": warm.records,
        "steps": public.steps,
        "loss": {"before": warm.first_loss, "after": warm.last_loss},
        "initial_model": model_digest(terms, [model_bytes(warm.weights)]),
        "file": str(out),
        "epsilon": 0.0,
    }
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(
        f"{out}: {public.steps} steps on {warm.records} public records, loss {warm.first_loss:.4f} to "
        f"{warm.last_loss:.4f}; costs no ε"
    )
