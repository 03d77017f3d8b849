"""``sealsum read``: a person looks at a server's jobs, fetches a job's evidence, or the server's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from privacy.errors import ConfigurationError
from sealsum.job_list import listed_jobs, print_jobs
from sealsum.login.options import calling, person_client
from sealsum.served_log import assert_whole, fetch_log

_LARGEST = 1 << 30
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
_OUT = click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; never replaced.",
)


@click.group()
def read() -> None:
    """Read jobs, a job's evidence or a server's log, as a person with a role for it."""


@read.command()
@calling
@click.option("--open", "only_open", is_flag=True, help="Only those that wait or run.")
@_JSON
def jobs(only_open: bool, as_json: bool, **who: Any) -> None:
    """List the federation's jobs, oldest first: who asked, for what, and where each stands."""
    with person_client(**who) as client:
        print_jobs(listed_jobs(client), only_open, as_json)


@read.command()
@click.argument("job")
@calling
@_OUT
@_JSON
def evidence(job: str, out: Path, as_json: bool, **who: Any) -> None:
    """Fetch all signed messages of JOB and the aggregator's log; nothing of it is verified here.

    A researcher makes a pack of it, which sealsum-verify judges.
    """
    _refuse_to_replace(out)
    with person_client(**who) as client:
        raw = client.get_bytes(f"/v1/jobs/{quote(job, safe='')}/evidence", limit=_LARGEST)
    out.write_bytes(raw)
    _say({"file": str(out), "bytes": len(raw)}, as_json)


@read.command()
@calling
@_OUT
@_JSON
def log(out: Path, as_json: bool, **who: Any) -> None:
    """Fetch the server's log, an entry a line, and beside it FILE.checkpoint, whose root they must have.

    Who signed the checkpoint is for sealsum-verify to judge, which knows the federation's keys.
    """
    beside = out.with_name(out.name + ".checkpoint")
    _refuse_to_replace(out, beside)
    with person_client(**who) as client:
        served = fetch_log(client, _LARGEST)
    head = assert_whole(served)
    out.write_bytes(served.lines)
    beside.write_text(served.checkpoint, encoding="utf-8")
    _say({"file": str(out), "entries": head.size, "root": head.root}, as_json)


def _refuse_to_replace(*files: Path) -> None:
    for file in files:
        if file.exists():
            raise ConfigurationError(f"{file}: it exists; choose another --out")


def _say(written: dict[str, Any], as_json: bool) -> None:
    plain = ", ".join(f"{name} {value}" for name, value in written.items())
    click.echo(json.dumps(written) if as_json else plain)
