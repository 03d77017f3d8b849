"""Run a server process from its settings file until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import uvloop

from aggregator.assembly import assemble_aggregator, assemble_share_server
from aggregator.health import ServerHealth, listening
from aggregator.lease import Lease
from aggregator.logs import log_to_stderr
from aggregator.meters import Counting, ServerMeters
from aggregator.operators.admitting import server_context
from aggregator.orphan_rules import share_server_collector
from aggregator.peers import post_renewal
from aggregator.settings import AggregatorSettings, ServerSettings, ShareServerSettings, load_settings
from aggregator.standby import turn, while_held
from aggregator.web_server import bind, serve
from policies.health.renewal import Upkeep
from privacy.keystore import Identity
from privacy.renewal import SignedRenewal

_PRIVATE_UMASK = 0o077


def run_aggregator(config: Path) -> None:
    """Serve silos and researchers.

    Raises:
        ConfigurationError: the settings, the identity or the charter are not usable.
    """
    settings = load_settings(config, AggregatorSettings)
    os.umask(_PRIVATE_UMASK)
    log_to_stderr(settings.log_level)
    if settings.lease_s is None:
        _aggregate(settings)
        return
    listener = bind(settings.address)
    with turn(settings, listener) as lease:
        if lease is not None:
            _aggregate(settings, listener, lease)


def _aggregate(
    settings: AggregatorSettings, listener: socket.socket | None = None, lease: Lease | None = None
) -> None:
    server = assemble_aggregator(settings, lease=lease)
    server.state.store.sinks.start()
    meters = ServerMeters("aggregator", settings.state_dir)
    state = server.state
    health = ServerHealth(settings, meters, state.store, lambda: state.held.charter, state, server.stores)

    async def work() -> None:
        await server.collector.beside(server.loop.run, meters.blobs)

    upkeep = upkeep_of(settings, server.identity, meters)
    with listening(settings, health), upkeep:
        uvloop.run(
            serve(
                Counting(server.app, meters),
                server_context(settings, server.identity),
                listener or bind(settings.address),
                drain_s=settings.drain_s,
                on_drain=server.state.bell.silence,
                beside=work if lease is None else lambda: while_held(lease, work),
                on_ready=lambda _: _ready(health, upkeep),
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
    meters = ServerMeters("share_server", settings.state_dir)
    health = ServerHealth(
        settings, meters, server.store, lambda: server.charters.charter, stores=server.stores
    )
    collector = share_server_collector(settings, server.store, server.stores)
    upkeep = upkeep_of(settings, server.identity, meters)
    with listening(settings, health), upkeep:
        uvloop.run(
            serve(
                Counting(server.app, meters),
                server_context(settings, server.identity),
                bind(settings.address),
                drain_s=settings.drain_s,
                on_drain=collector.stop,  # it has no long-polls
                beside=lambda: collector.run(meters.blobs),
                on_ready=lambda _: _ready(health, upkeep),
            )
        )
    server.store.close()


def upkeep_of(settings: ServerSettings, identity: Identity, meters: ServerMeters) -> Upkeep:
    """Renews the server's certificate, if a registrar is known.

    Raises:
        SealsumError: it is over, and cannot be renewed.
    """
    registrar = settings.registrar_url or identity.pin.registrar

    def post(asked: SignedRenewal) -> bytes:
        return post_renewal(registrar, identity.client_context, asked)

    upkeep = Upkeep(identity, meters, post if registrar else None)
    upkeep.renew_if_ended()
    return upkeep


def _ready(health: ServerHealth, upkeep: Upkeep) -> None:
    loop = asyncio.get_running_loop()
    health.on(loop)
    loop.add_signal_handler(signal.SIGHUP, upkeep.reload)
