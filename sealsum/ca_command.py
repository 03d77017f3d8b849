"""``sealsum federation replace-ca``: a new CA for a federation, with an overlap."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from cryptography import x509

from aggregator.enrolment.authority import load_authority
from aggregator.enrolment.replacing_ca import STEPS, Step
from aggregator.enrolment.replacing_ca import replace_ca as take

_NEXT: dict[Step, str] = {
    "begin": "restart the registrar; once all parties have renewed: sealsum federation replace-ca {} switch",
    "switch": "restart the registrar; once all parties have renewed: sealsum federation replace-ca {} retire",
    "retire": "restart the registrar; parties that renew now believe the new CA only",
}


@click.command("replace-ca")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("step", type=click.Choice(STEPS))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def replace_ca(directory: Path, step: Step, as_json: bool) -> None:
    """Replace the CA in three steps: begin, switch, retire. All parties renew between two of them."""
    authority = take(load_authority(directory), step, datetime.now(UTC))
    believed = x509.load_pem_x509_certificates(authority.ca_pem.encode())
    following = _NEXT[step].format(directory)
    if as_json:
        ends = [one.not_valid_after_utc.isoformat() for one in believed]
        click.echo(json.dumps({"step": step, "believed_until": ends, "next": following}))
    else:
        click.echo(f"{step}: {len(believed)} CA(s) believed, the first issues; {following}")
