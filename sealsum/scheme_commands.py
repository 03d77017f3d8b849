"""``sealsum scheme``: which ways of adding up updates exist, what each withstands and when it is refused.

It prints the two tables of ``privacy.secagg.catalogue`` and knows nothing of its own.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict

import click

from privacy.secagg.catalogue import SCHEMES, Cost, Scheme

_WIDTH = 100
_LABEL = 16


@click.group()
def scheme() -> None:
    """List how updates can be added up without being seen."""


@scheme.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def list_schemes(as_json: bool) -> None:
    """List every scheme: what it withstands and costs, and when a policy refuses it."""
    entries = SCHEMES.values()
    if as_json:
        click.echo(json.dumps([_plain(entry) for entry in entries]))
        return
    click.echo("\n\n".join(_page(entry) for entry in entries))


def _plain(entry: Scheme) -> dict[str, object]:
    return {**asdict(entry), "validity": sorted(entry.validity)}


def _page(entry: Scheme) -> str:
    """One scheme for people: its name, then a line for each property."""
    lines = [
        ("withstands", entry.withstands),
        ("colluding", f"servers: {entry.colluding_servers}"),
        ("interaction", f"a silo sends and then waits {entry.rounds} × a round"),
        (
            "bytes/parameter",
            f"{entry.bytes_per_parameter:g} up, {entry.bytes_down_per_parameter:g} down, at 8 silos",
        ),
        ("CPU", _spoken(entry.cost)),
        *([("with validity", _spoken(entry.cost_with_validity))] if entry.cost_with_validity else []),
        ("dropout", entry.dropout),
        ("validity", ", ".join(sorted(entry.validity))),
        *(("refused when" if number == 0 else "", reason) for number, reason in enumerate(entry.refused)),
    ]
    indent = " " * (_LABEL + 2)
    body = [
        textwrap.fill(text, _WIDTH, initial_indent=f"  {label:<{_LABEL}}", subsequent_indent=indent)
        for label, text in lines
    ]
    return "\n".join([entry.name, *body])


def _spoken(cost: Cost) -> str:
    return f"silo {cost.silo:g} ×, servers {cost.servers:g} × a plaintext sum"
