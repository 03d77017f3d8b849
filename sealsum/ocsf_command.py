"""``sealsum audit ocsf``: a log as events of the Open Cybersecurity Schema Framework, for a SIEM."""

from __future__ import annotations

import json
from pathlib import Path

import click

from policies.audit_sinks.ocsf import ocsf_line
from privacy.errors import ConfigurationError, LedgerDamaged
from privacy.transparency.leaf import parse_record


@click.command(short_help="Turn a log file into OCSF events.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--origin",
    required=True,
    help="Whose log it is: sealsum/FEDERATION/log/PARTY, the first line of its checkpoint.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write; else stdout.")
@click.option("--json", "as_json", is_flag=True, help="With --out: say as JSON how many events were written.")
def ocsf(file: Path, origin: str, out: Path | None, as_json: bool) -> None:
    """Turn FILE, a log with one record a line, into OCSF 1.3.0 events, one a line.

    FILE is a silo's log.jsonl, a log of an evidence pack, or what an audit sink of type jsonl holds. Nothing
    is verified: sealsum-verify does that.
    """
    events = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line:
            continue
        try:
            events.append(ocsf_line(parse_record(line), origin) + b"\n")
        except LedgerDamaged as error:
            raise ConfigurationError(
                f"{file}, line {number}: expected a record of a log, got something else; "
                "give a log in the form record"
            ) from error
    if out is None:
        if as_json:
            raise ConfigurationError("--json: expected it with --out; without it the events are the output")
        click.echo(b"".join(events), nl=False)
        return
    out.write_bytes(b"".join(events))
    said = {"events": len(events), "out": str(out)}
    click.echo(json.dumps(said) if as_json else f"{out}: {len(events)} OCSF events")
