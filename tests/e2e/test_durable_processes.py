"""Real processes, killed with SIGKILL in the middle of rounds: the same rounds go on, each opened once."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from privacy.canonical import canonical_bytes
from privacy.keystore import load_identity
from privacy.plan import JobSpec, RoundPlan
from privacy.wire.readiness import JobReadiness
from tests.aggregator_world import content_digest, on_loop
from tests.crash_world import CarefulSilo, plain_model
from tests.e2e.postgresql import binary_directory, running_cluster
from tests.federation import Federation

BINARIES = binary_directory()
pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@dataclass
class Processes:
    """A federation whose servers are processes of this machine."""

    root: Path
    ports: dict[str, int]
    federation: Federation = field(init=False)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    silos: dict[str, CarefulSilo] = field(default_factory=dict)
    servers: tuple[str, ...] = ("server-0", "server-1")
    first_answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        at = {party: f"https://127.0.0.1:{port}" for party, port in self.ports.items()}
        self.federation = Federation(urls=at)
        for party in ("aggregator", *self.servers, *self.federation.charter.silos, "researcher"):
            self.federation.identity(party, self.root / party)

    def start(self, name: str, party: str, **settings: Any) -> None:
        """Start a server's process; ``name`` tells several of one party apart."""
        port = self.ports[name]
        config = self.root / f"{name}.yaml"
        config.write_text(json.dumps({"state_dir": party, "listen": f"127.0.0.1:{port}", **settings}))
        command = "aggregator" if party == "aggregator" else "share-server"
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "sealsum", command, "serve", "--config", str(config)], stderr=log
            )

    def kill(self, name: str) -> None:
        """As power loss would, but for the disk's cache."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def log_of(self, name: str) -> str:
        """What a process has said so far."""
        return (self.root / f"{name}.log").read_text()

    async def said(self, name: str, word: str) -> None:
        """Wait until a process has said it."""
        until = time.monotonic() + 60
        while word not in self.log_of(name):
            assert time.monotonic() < until, self.log_of(name)[-2000:]
            await asyncio.sleep(0.05)

    async def ask(
        self, who: str, parties: tuple[str, ...], method: str, path: str, raw: bytes = b"", **params: str
    ) -> httpx.Response:
        """One call, again and at each of the addresses in turn until somebody answers."""
        headers = content_digest(raw) if method == "PUT" and b"parts" in path.encode() else {}
        context = self._tls(who)
        until = time.monotonic() + 60
        while True:
            for party in parties:
                url = f"https://127.0.0.1:{self.ports[party]}{path}"
                try:
                    async with httpx.AsyncClient(verify=context, timeout=30, trust_env=False) as client:
                        answer = await client.request(
                            method, url, content=raw, headers=headers, params=params
                        )
                except httpx.TransportError:
                    continue
                if answer.status_code not in (502, 503, 504):
                    return answer
            assert time.monotonic() < until, f"{who} {method} {path}: nobody answers"
            await asyncio.sleep(0.1)

    def _tls(self, who: str) -> Any:
        return load_identity(self.root / who).client_context


@dataclass
class DiallingSilo(CarefulSilo):
    """A silo over real connections."""

    aggregators: tuple[str, ...] = ("aggregator",)

    async def _ask(
        self, party: str, method: str, path: str, raw: bytes = b"", expected: set[int] | None = None
    ) -> httpx.Response:
        world: Any = self.world
        path, _, query = path.partition("?")
        params = dict(pair.split("=") for pair in query.split("&")) if query else {}
        to = self.aggregators if party == "aggregator" else (party,)
        answer: httpx.Response = await world.ask(self.name, to, method, path, raw, **params)
        assert expected is None or answer.status_code in expected, answer.text
        return answer

    async def _take_part(self, plan: RoundPlan) -> None:
        await super()._take_part(plan)
        self.world.first_answers.set()  # type: ignore[attr-defined]


@contextmanager
def processes(root: Path, *names: str) -> Iterator[Processes]:
    """Ended with the block, whatever happens in it."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = {name: one.getsockname()[1] for name, one in zip(names, listeners, strict=True)}
    for one in listeners:
        one.close()
    world = Processes(root, ports)
    try:
        yield world
    finally:
        for process in world.running.values():
            process.kill()
            process.wait(30)


async def submit(world: Processes, aggregators: tuple[str, ...], spec: JobSpec) -> None:
    """The researcher's job, which every silo approves."""
    model = world.federation.initial_model(spec.model.parameters)
    path = f"/v1/models/{spec.initial_model}"
    answer = await world.ask(
        "researcher", aggregators, "PUT", path, model, architecture=spec.model.architecture
    )
    assert answer.status_code in (200, 201), answer.text
    raw = canonical_bytes(world.federation.sign_job(spec))
    answer = await world.ask("researcher", aggregators, "POST", "/v1/jobs", raw)
    assert answer.status_code in (200, 201), answer.text
    for silo in world.federation.charter.silos:
        said = JobReadiness(silo=silo, job_digest=spec.digest, decision="approved")
        raw = canonical_bytes(world.federation.sign(said, "readiness", spec.digest, silo))
        answer = await world.ask(silo, aggregators, "POST", f"/v1/jobs/{spec.job}/readiness", raw)
        assert answer.status_code == 202, answer.text


async def outcome(world: Processes, aggregators: tuple[str, ...], spec: JobSpec) -> None:
    """Every round was opened once, for all silos, and the model is that of the plain sums."""
    view = (await world.ask("researcher", aggregators, "GET", f"/v1/jobs/{spec.job}")).json()
    assert (view["state"], view["openings"]) == ("finished", spec.rounds)
    assert [entry["outcome"] for entry in view["history"]] == ["opened"] * spec.rounds
    model = await world.ask("researcher", aggregators, "GET", f"/v1/models/{view['model']}")
    sent = [silo.sent for silo in world.silos.values()]
    assert model.content == plain_model(
        spec, [[updates[number].encoded for updates in sent] for number in range(spec.rounds)]
    )


def silos_of(world: Processes, aggregators: tuple[str, ...]) -> list[asyncio.Task[Any]]:
    names = world.federation.charter.silos
    silos = [DiallingSilo(world, name, n, aggregators=aggregators) for n, name in enumerate(names, 1)]  # type: ignore[arg-type]
    return [asyncio.create_task(silo.run()) for silo in silos]


@on_loop
async def test_an_aggregator_killed_again_and_again_finishes_the_job_it_had(tmp_path: Path) -> None:
    with processes(tmp_path, "aggregator", "server-0", "server-1") as world:
        for party in ("server-0", "server-1", "aggregator"):
            world.start(party, party)
        spec = world.federation.job_spec(parameters=5, rounds=3)
        await submit(world, ("aggregator",), spec)
        runs = silos_of(world, ("aggregator",))
        await asyncio.wait_for(world.first_answers.wait(), 60)
        for pause in (0.0, 0.3):
            world.kill("aggregator")
            world.start("aggregator", "aggregator")
            await asyncio.sleep(pause)
        world.kill("server-1")
        world.start("server-1", "server-1")
        await asyncio.wait_for(asyncio.gather(*runs), 120)
        await outcome(world, ("aggregator",), spec)


@pytest.mark.skipif(BINARIES is None, reason="needs PostgreSQL's initdb (apt-get install postgresql)")
@on_loop
async def test_one_of_two_aggregators_takes_over_from_the_other_in_the_middle_of_a_round(
    tmp_path: Path,
) -> None:
    assert BINARIES is not None
    both = ("aggregator", "second")
    with running_cluster(BINARIES) as cluster, processes(tmp_path, *both, "server-0", "server-1") as world:
        shared = {"database_url": cluster.url(cluster.new_database()), "lease_s": 3}
        for party in ("server-0", "server-1"):
            world.start(party, party)
        world.start("aggregator", "aggregator", **shared)
        await world.said("aggregator", "listening")
        world.start("second", "aggregator", **shared)
        await world.said("second", "standing_by")
        spec = world.federation.job_spec(parameters=5, rounds=3)
        # Everybody dials the standby, as a balancer may have them do.
        await submit(world, ("second",), spec)
        runs = silos_of(world, ("second",))
        await asyncio.wait_for(world.first_answers.wait(), 60)
        world.kill("aggregator")
        await world.said("second", "lease_taken")
        await asyncio.wait_for(asyncio.gather(*runs), 120)
        await outcome(world, ("second",), spec)
