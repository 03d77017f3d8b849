"""``sealsum algorithm``: what a job file may name, what each half does, costs and tells, and when it is
refused.

It prints ``sealsum.algorithms`` and knows nothing of its own.
"""

from __future__ import annotations

import json
import shutil
import textwrap

import click

from sealsum.algorithm_row import AlgorithmRow, Terms
from sealsum.algorithms import CATALOGUE, DEFAULT, DEFAULT_PRIVATE

_WIDTH = 100
"""At most; less in a narrower terminal."""
_LABEL = 14


@click.group()
def algorithm() -> None:
    """List the training algorithms that a job may name."""


@algorithm.command("list", short_help="List every algorithm: what it does, costs and tells.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def list_algorithms(as_json: bool) -> None:
    """List every algorithm: what it does, costs and tells, and whether it goes with DP."""
    if as_json:
        click.echo(json.dumps([_plain(name, row) for name, row in CATALOGUE.items()]))
        return
    click.echo("\n\n".join(_page(name, row) for name, row in CATALOGUE.items()))


def _plain(name: str, row: AlgorithmRow) -> dict[str, object]:
    return {
        "name": name,
        "without_dp": row.terms and dict(row.terms),
        "with_dp": row.private and dict(row.private),
        "refused_with_dp": row.refused,
        "silo": row.silo,
        "server": row.server,
        "cost": row.cost,
        "leaks": row.leaks,
        "schemes": row.schemes,
        "further": list(row.further),
        "default": {DEFAULT: "without dp", DEFAULT_PRIVATE: "with dp"}.get(name),
    }


def _page(name: str, row: AlgorithmRow) -> str:
    """One algorithm for people: its name, then a line for each property."""
    lines = [
        ("each silo", row.silo),
        ("the server", row.server),
        ("costs", row.cost),
        ("tells", row.leaks),
        ("schemes", row.schemes),
        *([("without DP", _spoken(row.terms))] if row.terms else []),
        ("with DP", _spoken(row.private) if row.private else f"refused: {row.refused}"),
    ]
    indent = " " * (_LABEL + 2)
    width = min(_WIDTH, max(2 * _LABEL, shutil.get_terminal_size((_WIDTH, 0)).columns))
    body = [
        textwrap.fill(text, width, initial_indent=f"  {label:<{_LABEL}}", subsequent_indent=indent)
        for label, text in lines
    ]
    mark = {DEFAULT: " (the default without DP)", DEFAULT_PRIVATE: " (the default with DP)"}.get(name, "")
    return "\n".join([name + mark, *body])


def _spoken(terms: Terms) -> str:
    inner = {key: value for key, value in terms.items() if key != "algorithm"}
    fields = []
    for key, value in inner.items():
        if isinstance(value, dict):
            fields += [f"{key}.{field} {one}" for field, one in value.items()]
        else:
            fields.append(f"{key} {value}")
    return f"signed as {terms['algorithm']}" + (f" with {', '.join(fields)}" if fields else "")
