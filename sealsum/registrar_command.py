"""``sealsum federation serve``: the one officer's command that needs the server libraries."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from aggregator.enrolment.authority import load_authority
from aggregator.enrolment.serve import Listen, serve_registrar
from sealsum.option_types import Address, Duration


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--listen", required=True, type=Address(), metavar="HOST:PORT", help="Port 0 takes a free one.")
@click.option(
    "--hostname", "hostnames", multiple=True, help="Another name under which parties dial. Repeatable."
)
@click.option(
    "--leaf-life", type=Duration(), default="90d", show_default=True, help="Life of issued certificates."
)
def serve(directory: Path, listen: tuple[str, int], hostnames: tuple[str, ...], leaf_life: timedelta) -> None:
    """Run the registrar while parties enrol; logs go to stderr as JSON lines."""
    serve_registrar(load_authority(directory), Listen(*listen, hostnames), leaf_life)
