"""``sealsum aggregator`` and ``sealsum share-server``: run a server until it is asked to stop."""

from __future__ import annotations

from pathlib import Path

import click

_config = click.option(
    "--config",
    "config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="server.yaml: state_dir, listen, and what else the operator decides.",
)


@click.group()
def aggregator() -> None:
    """Coordinate rounds; see no update, no count, no seed."""


@aggregator.command("serve")
@_config
def serve_aggregator(config: Path) -> None:
    """Serve silos and researchers. SIGTERM drains and exits 0."""
    # Imported when it serves: ``enroll``, put under this group, needs no database and no web server.
    from aggregator.serving import run_aggregator

    run_aggregator(config)


@click.group("share-server")
def share_server() -> None:
    """Hold one share of each update; release one share of each sum."""


@share_server.command("serve")
@_config
def serve_share_server(config: Path) -> None:
    """Serve silos and the aggregator. SIGTERM drains and exits 0."""
    # Imported when it serves: ``enroll``, put under this group, needs no database and no web server.
    from aggregator.serving import run_share_server

    run_share_server(config)
