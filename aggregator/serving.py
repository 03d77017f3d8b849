"""Run a server process from its settings file until it is asked to stop."""

from __future__ import annotations

import os
from pathlib import Path

import uvloop

from aggregator.assembly import assemble_aggregator, assemble_share_server
from aggregator.logs import log_to_stderr
from aggregator.operators.admitting import server_context
from aggregator.settings import AggregatorSettings, ShareServerSettings, load_settings
from aggregator.web_server import bind, serve

_PRIVATE_UMASK = 0o077


def run_aggregator(config: Path) -> None:
    """Serve silos and researchers.

    Raises:
        ConfigurationError: the settings, the identity or the charter are not usable.
    """
    settings = load_settings(config, AggregatorSettings)
    os.umask(_PRIVATE_UMASK)
    log_to_stderr(settings.log_level)
    server = assemble_aggregator(settings)
    server.state.store.sinks.start()
    uvloop.run(
        serve(
            server.app,
            server_context(settings, server.identity),
            bind(settings.address),
            drain_s=settings.drain_s,
            on_drain=server.state.bell.silence,
            beside=server.loop.run,
        )
    )
    server.state.store.close()


def run_share_server(config: Path) -> None:
    """Serve silos and the aggregator.

    Raises:
        ConfigurationError: the settings, the identity or the charter are not usable.
    """
    settings = load_settings(config, ShareServerSettings)
    os.umask(_PRIVATE_UMASK)
    log_to_stderr(settings.log_level)
    server = assemble_share_server(settings)
    server.store.sinks.start()
    uvloop.run(
        serve(
            server.app,
            server_context(settings, server.identity),
            bind(settings.address),
            drain_s=settings.drain_s,
            on_drain=lambda: None,  # it has no long-polls
        )
    )
    server.store.close()
