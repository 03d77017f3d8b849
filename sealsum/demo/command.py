"""``sealsum demo``: options, exit codes, and what is printed; the run itself is in ``run``."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console

from policies.rules_assumed import ONE_SERVER_SEES_NO_SHARES
from privacy.errors import ConfigurationError
from privacy.plan import AlgorithmName, SchemeName
from privacy.secagg.catalogue import SCHEMES
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES
from privacy.secagg.threshold.worker import assert_available
from sealsum.demo.options import (
    DEFAULT_OUT,
    DEFAULT_ROUNDS,
    DISTRIBUTED_POLICY,
    POLICIES,
    VALIDITY_POLICY,
    DemoOptions,
    NoiseName,
)

TERMINATED = 128 + signal.SIGTERM
NOT_VERIFIED = 5
MADE = ".venv-openfhe/bin/python"
"""Where ``make threshold-he`` puts its interpreter."""


class CarriedScheme(click.ParamType[SchemeName]):
    """A secure-aggregation scheme that this release carries."""

    name = "scheme"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> SchemeName:
        name = next((name for name in POLICIES if name == value and name in SCHEMES), None)
        if name is None:
            self.fail(f"expected one of: {', '.join(sorted(SCHEMES))}; got {value!r}", param, ctx)
        return name


@click.command()
@click.option(
    "--policy",
    metavar="NAME|FILE",
    help=f"Threat model.  [default: {POLICIES['additive']}, demo-SCHEME, {VALIDITY_POLICY} or "
    f"{DISTRIBUTED_POLICY}]",
)
@click.option(
    "--scheme",
    type=CarriedScheme(),
    default="additive",
    show_default=True,
    help="How updates are summed; 'sealsum scheme list' names the ways.",
)
@click.option(
    "--validity",
    is_flag=True,
    help="Each hospital proves a bound on its update, on shares that nobody can read; with additive only.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["dp_fedsgd", "dp_fedavg"]),
    default="dp_fedsgd",
    show_default=True,
    help="One private step a round, or several at each hospital.",
)
@click.option(
    "--noise",
    type=click.Choice(["full", "distributed"]),
    default="full",
    show_default=True,
    help="Each hospital adds all of the noise, or its share for the sum; with dp_fedsgd and additive only.",
)
@click.option("--rounds", type=click.IntRange(1, 1000), default=DEFAULT_ROUNDS, show_default=True)
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0, min_open=True),
    help="Most ε the job may cost a hospital.  [default: 3, or what the policy allows]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=DEFAULT_OUT,
    show_default=True,
    metavar="DIR",
    help="Folder for the results; an earlier demo's is replaced.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Who is held out, and the first model. Sampling, noise, keys and masks never follow a seed.",
)
@click.option(
    "--server-python",
    default=sys.executable,
    metavar="PATH",
    help="Python whose environment runs the servers, for example one without torch.  [default: this one]",
)
@click.option(
    "--threshold-he-python",
    metavar="PATH",
    help=f"Python that runs OpenFHE, for threshold_bfv and threshold_ckks.  [default: {MADE}, or this one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json to stdout, and nothing else there.")
def demo(
    policy: str | None,
    scheme: SchemeName,
    validity: bool,
    algorithm: AlgorithmName,
    noise: NoiseName,
    rounds: int,
    epsilon: float | None,
    out: Path,
    seed: int,
    server_python: str,
    threshold_he_python: str | None,
    as_json: bool,
) -> None:
    """Train one model across four hospitals on this machine, open only sums, and prove it."""
    began = time.monotonic()
    openfhe = _openfhe(scheme, threshold_he_python)
    # Imported here because it brings torch and matplotlib: help and usage errors answer without them.
    from sealsum.demo.run import run_demo
    from sealsum.demo.summary import table_of

    if validity and scheme != "additive":
        raise click.UsageError(f"--validity comes with additive only: {ONE_SERVER_SEES_NO_SHARES}")
    if noise == "distributed" and (scheme != "additive" or validity or algorithm != "dp_fedsgd"):
        raise click.UsageError("--noise distributed comes with dp_fedsgd and additive, without --validity")
    policy = policy or _policy_for(scheme, validity, noise)
    servers = _existing("--server-python", server_python)
    options = DemoOptions(
        policy, scheme, validity, algorithm, noise, rounds, epsilon, out, seed, servers, openfhe
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    finished = run_demo(options, Console(stderr=True), began)
    if as_json:
        click.echo(finished.folder.summary.read_text(encoding="utf-8"), nl=False)
    else:
        Console().print(table_of(finished.summary))
        click.echo("\n".join(finished.lines))
    if not finished.summary.verified:
        raise click.exceptions.Exit(NOT_VERIFIED)


def _policy_for(scheme: SchemeName, validity: bool, noise: NoiseName) -> str:
    if noise == "distributed":
        return DISTRIBUTED_POLICY
    return VALIDITY_POLICY if validity else POLICIES[scheme]


def _existing(option: str, python: str) -> str:
    if not Path(python).is_file():
        raise ConfigurationError(f"{option}: expected a Python interpreter, got {python}: no such file")
    return str(Path(python).absolute())


def _openfhe(scheme: SchemeName, named: str | None) -> Path | None:
    """Whose Python runs OpenFHE: as named, else what ``make threshold-he`` made here, else this one.

    Raises:
        ConfigurationError: OpenFHE does not run there; asked before anything is loaded or started.
    """
    if scheme not in JOINT_KEY_SCHEMES:
        if named is not None:
            raise click.UsageError(f"--threshold-he-python comes with {' and '.join(JOINT_KEY_SCHEMES)} only")
        return None
    made = Path(MADE).absolute() if Path(MADE).is_file() else None
    python = made if named is None else Path(_existing("--threshold-he-python", named))
    assert_available(python)
    return python


def _end(_number: int, _frame: FrameType | None) -> None:
    """Leave by the ordinary way, so that every ``with`` block ends its children."""
    raise SystemExit(TERMINATED)
