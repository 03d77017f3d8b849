"""A server says how it is; every metric that docs/metrics.md promises of servers is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from aggregator.assembly import assemble_aggregator, assemble_share_server
from aggregator.health import ServerHealth
from aggregator.meters import Counting, ServerMeters
from aggregator.settings import AggregatorSettings, ShareServerSettings
from policies.health.listener import HealthListener
from policies.health.settings import HealthSettings
from tests.federation import Federation
from tests.health_world import documented, get, shown, value


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@contextmanager
def health_of(health: ServerHealth) -> Iterator[str]:
    with HealthListener(
        HealthSettings(listen="127.0.0.1:0"), health.meters, health.checks(), health.refresh, health.alive
    ) as listener:
        yield listener.url


def test_an_aggregator_shows_every_documented_metric_and_no_other(tmp_path: Path) -> None:
    federation = Federation()
    federation.identity("aggregator", tmp_path)
    settings = AggregatorSettings(state_dir=tmp_path, listen="127.0.0.1:0")
    server = assemble_aggregator(settings)
    meters = ServerMeters("aggregator", tmp_path)
    state = server.state
    with loop_in_a_thread() as loop:
        health = ServerHealth(settings, meters, state.store, lambda: state.held.charter, state)
        health.on(loop)
        with state.store.write() as transaction:
            transaction.record("round_offered", context="a" * 64, job="j", round=1)
        with state.store.write() as transaction:
            transaction.record("model_published", context="a" * 64, job="j", model="b" * 64)

        async def call() -> None:
            transport = httpx.ASGITransport(Counting(server.app, meters))
            async with httpx.AsyncClient(transport=transport, base_url="https://server.test") as http:
                assert (await http.get("/livez")).status_code == 200
                assert (await http.get("/v1/charter")).status_code == 401

        asyncio.run_coroutine_threadsafe(call(), loop).result(30)
        with health_of(health) as url:
            assert get(url, "/livez").status_code == 200
            assert get(url, "/readyz?verbose").json()["status"] == "ready"
            exposition = get(url, "/metrics").text
    state.store.close()
    expected = {name: one[0] for name, one in documented().items() if one[1] != "silo"}
    assert {name: frozenset(labels) for name, labels in shown(exposition).items()} == expected
    assert value(exposition, "sealsum_server_rounds_total", outcome="opened") == 1
    assert value(exposition, "sealsum_server_round_seconds_count") == 1
    assert value(exposition, "sealsum_server_responses_total", status="4xx") == 1
    assert value(exposition, "sealsum_server_silos_enrolled") == 4


def test_a_server_whose_loop_is_stuck_is_neither_alive_nor_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.health.LOOP_S", 0.05)
    federation = Federation()
    federation.identity("server-0", tmp_path)
    settings = ShareServerSettings(state_dir=tmp_path, listen="127.0.0.1:0")
    server = assemble_share_server(settings)
    meters = ServerMeters("share_server", tmp_path)
    with loop_in_a_thread() as loop:
        health = ServerHealth(settings, meters, server.store, lambda: server.charters.charter)
        health.on(loop)
        going_on = threading.Event()
        with health_of(health) as url:
            assert get(url, "/livez").status_code == 200
            loop.call_soon_threadsafe(going_on.wait)
            assert get(url, "/livez").status_code == 503
            assert get(url, "/readyz").json()["checks"][0]["check"] == "log"
            going_on.set()
            assert get(url, "/readyz").status_code == 200
    server.store.close()
