"""``sealsum policy simulate``: a job file put before threat models, in a federation that need not exist."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from policies.loader import LoadedPolicy, load_threat_model
from privacy.errors import ConfigurationError
from privacy.officers import read_body
from privacy.plan import JobSpec
from privacy.roster import Charter
from privacy.secagg.catalogue import SCHEMES
from privacy.wire.charter import MAX_CHARTER_BYTES, parse_charter
from sealsum.job_file import JobFile, read_job_file
from sealsum.policy_file import read_policy
from sealsum.policy_trial import Trial, trial_charter, try_job

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@click.option("--federation", type=_FILE, help="A charter.json: its parties, and its policy unless --policy.")
@click.option("--silos", type=click.IntRange(2, 1000), help="Instead: that many institutions, made up.")
@click.option("--policy", "policy_name", metavar="NAME|FILE", help="The federation's threat model.")
@click.option("--parent", "parents", multiple=True, metavar="NAME|FILE", help="A threat model it extends.")
@click.option(
    "--job", "job_file", type=_FILE, required=True, help="job.yaml, as sealsum job submit takes it."
)
@click.option(
    "--silo-policy",
    "silo_policies",
    multiple=True,
    metavar="NAME|FILE",
    help="A silo's own; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def simulate(
    federation: Path | None,
    silos: int | None,
    policy_name: str | None,
    parents: tuple[str, ...],
    job_file: Path,
    silo_policies: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say whether a job would run, and what it would cost; exits 0, or 3 if a rule refuses it.

    Nothing is sent, trained or charged. A charter is read for its roster; its signatures are not checked.
    """
    policy, charter = _terms(federation, silos, policy_name, parents)
    asked = read_job_file(job_file)
    own = [read_policy(name, parents) for name in silo_policies]
    job = asked.spec(charter, _first_model(asked))
    trial = try_job(job, charter, policy, own, list(_by_other_schemes(asked, charter)))
    if as_json:
        click.echo(json.dumps(asdict(trial)))
    else:
        _print(trial)
    if not trial.runs:
        raise click.exceptions.Exit(3)


def _terms(
    federation: Path | None, silos: int | None, policy_name: str | None, parents: tuple[str, ...]
) -> tuple[LoadedPolicy, Charter]:
    if (federation is None) == (silos is None):
        raise ConfigurationError("expected one of --federation FILE and --silos N, got both or neither")
    if federation is None:
        if policy_name is None or silos is None:
            raise ConfigurationError("--policy: expected a profile or a file with --silos, got nothing")
        policy = read_policy(policy_name, parents)
        return policy, trial_charter(silos, policy)
    with federation.open("rb") as stream:
        charter = read_body(parse_charter(stream.read(MAX_CHARTER_BYTES + 1)).charter, Charter)
    if policy_name is None:
        return load_threat_model(charter.policy_text, charter.policy_parents), charter
    policy = read_policy(policy_name, parents)
    under = {"policy": policy.digest, "policy_text": policy.text, "policy_parents": policy.parents}
    return policy, Charter(**{**dict(charter), **under})


def _first_model(asked: JobFile) -> NDArray[np.float32]:
    """No rule looks into a model's numbers: zeros stand in for one that comes with ``--model``."""
    return np.zeros(asked.terms().parameters, dtype=np.float32)


def _by_other_schemes(asked: JobFile, charter: Charter) -> Iterator[JobSpec]:
    """The same job on the finest grid that each scheme's sum fits; those that carry none are left out."""
    for scheme in SCHEMES:
        if scheme != asked.scheme:
            terms = {"scheme": scheme, "vector": None, "validity": None}
            try:
                yield asked.model_copy(update=terms).spec(charter, _first_model(asked))
            except ConfigurationError:
                continue  # such as training metrics, which this scheme does not sum


def _print(trial: Trial) -> None:
    click.echo("This job would run." if trial.runs else "This job would not run.")
    for one in trial.judged:
        verdict = (
            "no objection" if not one.findings else "refuses" if one.enforced else "notes, and lets pass"
        )
        click.echo(f"  {one.name}: {verdict}")
        for finding in one.findings:
            for line in str(finding).splitlines():
                click.echo(f"    {line}")
    click.echo()
    if trial.price is None:
        click.echo("ε: none is claimed, or none could be computed")
    else:
        price = trial.price
        click.echo(f"ε of the whole job, at each silo   {_up(price.epsilon)} at δ = {price.delta:g}")
        click.echo(f"should the secure sum fail         {_up(price.epsilon_fallback)}")
    click.echo(f"silos to start a round             {trial.least_cohort} of {trial.silos}")
    if trial.opens_from > trial.silos:
        click.echo("a round of all silos               never opens")
    else:
        click.echo(f"a round of all silos               opens with {trial.opens_from} survivors or more")
    click.echo(f"a silo's vectors in one round      {trial.upload_bytes:,} bytes up\n")
    table = Table(title="One round by scheme (measured at 8 silos)")
    for heading in ("scheme", "bytes up", "bytes down", "silo ms", "servers ms"):
        table.add_column(heading, justify="left" if heading == "scheme" else "right")
    for cost in trial.costs:
        name = f"{cost.scheme} (asked)" if cost.asked else cost.scheme
        numbers = (
            f"{cost.up_bytes:,}",
            f"{cost.down_bytes:,}",
            f"{cost.silo_ms:.3g}",
            f"{cost.servers_ms:.3g}",
        )
        table.add_row(name, *numbers)
    Console(width=100).print(table)


def _up(value: float) -> str:
    """Four decimals, never below what was computed."""
    return f"{math.ceil(value * 10**4) / 10**4:.4f}"
