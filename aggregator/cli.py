"""``sealsum aggregator`` and ``sealsum share-server``: run a server until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from aggregator.assembly import assemble_aggregator, assemble_share_server
from aggregator.logs import log_to_stderr
from aggregator.settings import AggregatorSettings, ShareServerSettings, load_settings
from aggregator.web_server import bind, serve

_config = click.option(
    "--config",
    "config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="server.yaml: state_dir, listen, and what else the operator decides.",
)
_PRIVATE_UMASK = 0o077


@click.group()
def aggregator() -> None:
    """Coordinate rounds; see no update, no count, no seed."""


@aggregator.command("serve")
@_config
def serve_aggregator(config: Path) -> None:
    """Serve silos and researchers. SIGTERM drains and exits 0."""
    settings = load_settings(config, AggregatorSettings)
    os.umask(_PRIVATE_UMASK)
    log_to_stderr(settings.log_level)
    server = assemble_aggregator(settings)
    asyncio.run(
        serve(
            server.app,
            server.identity.server_context,
            bind(settings.address),
            drain_s=settings.drain_s,
            on_drain=server.state.bell.silence,
            beside=server.loop.run,
        )
    )
    server.state.store.close()


@click.group("share-server")
def share_server() -> None:
    """Hold one share of each update; release one share of each sum."""


@share_server.command("serve")
@_config
def serve_share_server(config: Path) -> None:
    """Serve silos and the aggregator. SIGTERM drains and exits 0."""
    settings = load_settings(config, ShareServerSettings)
    os.umask(_PRIVATE_UMASK)
    log_to_stderr(settings.log_level)
    server = assemble_share_server(settings)
    asyncio.run(
        serve(
            server.app,
            server.identity.server_context,
            bind(settings.address),
            drain_s=settings.drain_s,
            on_drain=lambda: None,  # it has no long-polls
        )
    )
    server.store.close()
