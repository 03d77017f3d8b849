"""``sealsum silo doctor``: what is wrong with this silo's set-up, and what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from silo_agent.doctor.examination import examine
from silo_agent.doctor.finding import Finding
from silo_agent.ledger_options import config_option

_SIGNS = {"ok": ("ok     ", "green"), "warning": ("warning", "yellow"), "fault": ("FAULT  ", "red")}
_SKIPPED = ("skipped", None)


@click.command(short_help="Name what is wrong with this silo's set-up.")
@config_option
@click.option(
    "--idle",
    type=click.FloatRange(min=0, max=600),
    default=25.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a connection is left silent, to see whether it lasts; 0 leaves that out.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_context
def doctor(context: click.Context, config: Path, idle: float, as_json: bool) -> None:
    """Name what is wrong: keys, disk, data, clock, DNS, proxy, TLS, charter. Changes nothing.

    Exits 0 where no fault is found (warnings may be), 78 for a fault on this machine, 2 for one on the way or
    at a server, 3 where threat models do not fit.
    """
    report = examine(config, idle)
    if as_json:
        findings = [one.as_dict() for one in report.findings]
        click.echo(json.dumps({"exit_code": report.exit_code, "findings": findings}, indent=2))
    else:
        for one in report.findings:
            _show(one)
        faults = sum(one.verdict == "fault" for one in report.findings)
        click.echo(
            f"{faults} fault(s), {sum(one.verdict == 'warning' for one in report.findings)} warning(s)"
        )
    context.exit(report.exit_code)


def _show(one: Finding) -> None:
    sign, colour = _SIGNS.get(one.verdict, _SKIPPED)
    click.secho(sign, fg=colour, nl=False)
    click.echo(f"  {one.check:<20} {one.looked_at}: {one.got}")
    if one.verdict in ("warning", "fault"):
        click.echo(f"         expected: {one.expected}")
        click.echo(f"         do:       {one.remedy}")
