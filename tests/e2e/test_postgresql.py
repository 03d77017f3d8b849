"""Servers on a real PostgreSQL: the same once-only rules, a whole job, and no password anywhere."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError

from aggregator.assembly import Aggregator, AssembledShareServer, assemble_share_server
from aggregator.audit_log import Overtaken
from aggregator.settings import ShareServerSettings
from aggregator.store import Store
from aggregator.tables import seeds
from policies.audit_sinks.sinks import Taken
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, Conflict
from privacy.identity import SigningKey
from privacy.ids import Context, JobId
from privacy.keystore import Identity
from privacy.transparency.leaf import parse_record
from tests.aggregator_world import Silo, World, client_of, on_loop, submit
from tests.e2e.postgresql import Cluster, binary_directory, running_cluster
from tests.e2e.postgresql_race import CONTEXTS, RACES, SURVIVORS, open_store, race
from tests.federation import Federation

BINARIES = binary_directory()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(BINARIES is None, reason="needs PostgreSQL's initdb (apt-get install postgresql)"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    assert BINARIES is not None
    with running_cluster(BINARIES) as running:
        yield running


def with_rounds(url: str, key: SigningKey) -> None:
    """A database in which the rounds of ``CONTEXTS`` wait to be opened."""
    store = open_store(url, key)
    with store.write() as transaction:
        for number, ctx in enumerate(CONTEXTS, start=1):
            transaction.add_round(ctx, JobId("heart"), number, "cleared")
        transaction.record("started", party="aggregator")
    store.close()


# --- once only ---


def race_of_two(url: str, key: SigningKey, *, logged: bool) -> dict[int, dict[int, str]]:
    """What both processes met: round → racer → outcome."""
    spawn = multiprocessing.get_context("spawn")
    barrier, outcomes = spawn.Barrier(2), spawn.Queue()
    racers = [
        spawn.Process(target=race, args=(url, key.to_pem(), racer, logged, barrier, outcomes))
        for racer in range(2)
    ]
    for racer in racers:
        racer.start()
    met: dict[int, dict[int, str]] = {}
    for _ in range(2 * RACES):
        number, by, outcome = outcomes.get(timeout=120)
        met.setdefault(number, {})[by] = outcome
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    return met


def test_of_two_processes_racing_for_an_opening_exactly_one_wins(cluster: Cluster) -> None:
    url, key = cluster.url(cluster.new_database()), SigningKey.generate()
    with_rounds(url, key)
    met = race_of_two(url, key, logged=False)
    assert len(met) == RACES
    # The database's key alone decides: these transactions write no log entry.
    assert all(sorted(outcomes.values()) == ["Conflict", "opened"] for outcomes in met.values()), met


def test_the_process_that_lost_a_race_decides_nothing_more_and_the_log_has_one_history(
    cluster: Cluster,
) -> None:
    url, key = cluster.url(cluster.new_database()), SigningKey.generate()
    with_rounds(url, key)
    met = race_of_two(url, key, logged=True)
    winners = {
        racer for outcomes in met.values() for racer, outcome in outcomes.items() if outcome == "opened"
    }
    assert len(winners) == 1, met
    assert all(len(outcomes) == 2 for outcomes in met.values())
    store = open_store(url, key)  # verifies the whole chain
    with store.read() as view:
        entries = [parse_record(line) for line in store.log.lines(view.connection)]
    store.close()
    assert [entry.body["context"] for entry in entries if entry.kind == "sum_opened"] == CONTEXTS


def offer_round(store: Store) -> None:
    with store.write() as transaction:
        transaction.add_round(CONTEXTS[0], JobId("heart"), 1, "collecting")
        transaction.record("round_offered", context=CONTEXTS[0])


def test_a_process_that_was_overtaken_is_not_ready_and_writes_no_more(cluster: Cluster) -> None:
    url, key = cluster.url(cluster.new_database()), SigningKey.generate()
    first, second = open_store(url, key), open_store(url, key)
    with second.write() as transaction:
        transaction.record("started", party="aggregator")
    for _ in range(2):
        with pytest.raises(Overtaken, match="another one has written"):
            offer_round(first)
    with first.read() as view, pytest.raises(Overtaken):
        first.log.check_ours(view.connection)
    with second.read() as view:
        second.log.check_ours(view.connection)
    offer_round(second)
    first.close()
    second.close()


def test_two_processes_may_start_at_once_on_an_empty_database(cluster: Cluster) -> None:
    key = SigningKey.generate()
    for _ in range(4):
        url = cluster.url(cluster.new_database())
        with ThreadPoolExecutor(2) as starters:
            stores = list(starters.map(lambda url: open_store(url, key), [url, url]))
        for store in stores:
            store.close()


# --- what is asked of the database ---


def test_commits_are_flushed_and_serializable_whatever_the_roles_defaults_are(cluster: Cluster) -> None:
    database = cluster.new_database()
    cluster.ask(f"ALTER DATABASE {database} SET synchronous_commit = off")
    store = open_store(cluster.url(database), SigningKey.generate())
    with store.read() as view:
        shown = [
            view.connection.execute(text(f"SHOW {setting}")).scalar_one()
            for setting in ("synchronous_commit", "transaction_isolation", "lock_timeout")
        ]
    store.close()
    assert shown == ["on", "serializable", "10s"]


def test_a_postgresql_server_that_does_not_flush_is_refused(cluster: Cluster) -> None:
    url = cluster.url(cluster.new_database())
    cluster.ask("ALTER SYSTEM SET fsync = off")
    cluster.stop()
    cluster.start()
    try:
        with pytest.raises(ConfigurationError, match="expected a PostgreSQL server with fsync=on, got off"):
            open_store(url, SigningKey.generate())
    finally:
        cluster.ask("ALTER SYSTEM RESET fsync")
        cluster.stop()
        cluster.start()


def test_a_wrong_password_is_a_configuration_error_that_does_not_repeat_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    wrong = tmp_path / "passfile"
    wrong.touch(mode=0o600)
    wrong.write_text("*:*:*:*:not-the-password\n")
    url = cluster.url(cluster.new_database(), wrong)
    with pytest.raises(ConfigurationError, match="password authentication failed") as refused:
        open_store(url, SigningKey.generate())
    assert "not-the-password" not in str(refused.value)


def test_a_statement_that_fails_does_not_repeat_what_it_was_given(cluster: Cluster) -> None:
    store = open_store(cluster.url(cluster.new_database()), SigningKey.generate())
    statement = insert(seeds).values(ctx="no such round", silo="silo-1", sealed=b"sealed-seed")
    with store.write() as transaction:
        with pytest.raises(IntegrityError, match="hide_parameters") as failed:
            transaction.connection.execute(statement)
        transaction.connection.rollback()
    store.close()
    assert "sealed-seed" not in str(failed.value)


# --- whole servers ---


@dataclass
class WorldOnPostgresql(World):
    """The in-memory world, some of whose servers keep their rows in PostgreSQL."""

    databases: dict[str, str] = field(default_factory=dict)

    def start_server(self, server: str) -> AssembledShareServer:
        if server in self.servers:
            self.servers[server].store.close()
        settings = ShareServerSettings(
            state_dir=self.root / server, listen="127.0.0.1:0", database_url=self.databases.get(server)
        )
        self.servers[server] = assemble_share_server(settings)
        return self.servers[server]

    def build_aggregator(self, **settings: Any) -> Aggregator:
        return super().build_aggregator(database_url=self.databases.get("aggregator"), **settings)


@on_loop
async def test_a_whole_job_runs_with_the_aggregator_and_a_share_server_on_postgresql(
    cluster: Cluster, tmp_path: Path
) -> None:
    databases = {party: cluster.url(cluster.new_database()) for party in ("aggregator", "server-1")}
    world = WorldOnPostgresql(tmp_path, databases=databases)
    spec = world.federation.job_spec(parameters=5)
    updates = [np.full(5, 0.25 * number, dtype=np.float32) for number in range(1, 5)]
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Silo(world, aggregator, f"silo-{n + 1}", updates[n]) for n in range(4)]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
        ctx = silos[0].sent[0].envelope.context
        with (
            pytest.raises(Conflict, match="a second is refused"),
            aggregator.state.store.write() as transaction,
        ):
            transaction.add_opening(Context(ctx), SURVIVORS, Taken(0))
    assert not (tmp_path / "aggregator" / "server.db").exists()
    assert (tmp_path / "server-0" / "server.db").exists()
    # Built anew from the database: the log verifies, the job is there.
    async with world.running(world.build_aggregator()) as aggregator:
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            view = (await client.get("/v1/jobs/heart")).json()
            model = (await client.get(f"/v1/models/{view['model']}")).content
        assert (view["state"], view["round"], view["openings"]) == ("finished", 2, 2)
        assert np.allclose(np.frombuffer(model, dtype="<f4"), 1.25, atol=1e-5)
    world.start_server("server-1").store.close()
    world.servers["server-0"].store.close()


def start(config: Path, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A real aggregator process, once it listens."""
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "sealsum", "aggregator", "serve", "--config", str(config)], stderr=written
        )
    for _ in range(600):
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n") and json.loads(line)["event"] == "listening":
                return process, json.loads(line)["url"]
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    process.kill()
    process.wait()
    raise AssertionError(log.read_text())


def client(identity: Identity, url: str) -> httpx.Client:
    return httpx.Client(base_url=url, verify=identity.client_context, timeout=30)


def until_idle(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has used no CPU for a second: its loop waits for silos."""
    used = ""
    while True:
        before, used = used, " ".join(Path(f"/proc/{process.pid}/stat").read_text().split()[13:15])
        if before == used:
            return
        time.sleep(1)


def test_a_real_aggregator_survives_a_kill_of_itself_and_of_its_database(
    cluster: Cluster, tmp_path: Path
) -> None:
    federation = Federation()
    federation.identity("aggregator", tmp_path / "aggregator")
    researcher = federation.identity("researcher", tmp_path / "researcher")
    spec = federation.job_spec()
    config = tmp_path / "server.yaml"
    url = cluster.url(cluster.new_database())
    config.write_text(f"state_dir: aggregator\nlisten: 127.0.0.1:0\ndatabase_url: {url}\n")
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    process, address = start(config, logs[0])
    try:
        with client(researcher, address) as caller:
            model = caller.put(
                f"/v1/models/{spec.initial_model}",
                params={"architecture": spec.model.architecture},
                content=federation.initial_model(spec.model.parameters),
            )
            job = caller.post("/v1/jobs", content=canonical_bytes(federation.sign_job(spec)))
            assert (model.status_code, job.status_code) == (201, 201), job.text
        assert cluster.password not in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.kill()
        process.wait()
        cluster.stop(signal.SIGQUIT)
        cluster.start()
        process, address = start(config, logs[1])
        with client(researcher, address) as caller:
            assert caller.get("/v1/jobs/heart").json()["state"] == "waiting"
            assert caller.get("/readyz").status_code == 200
            # A database that goes away is waited for; meanwhile the server says that it is not ready.
            until_idle(process)
            cluster.stop(signal.SIGQUIT)
            assert caller.get("/readyz").status_code == 503
            cluster.start()
            assert caller.get("/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        if cluster.process is None:
            cluster.start()
    said = "".join(log.read_text() for log in logs)
    assert cluster.password not in said
