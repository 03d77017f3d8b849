"""An aggregator and its share servers in one process over in-memory ASGI, with silos that can misbehave.

Everything is production code but the network: certificates travel in the ASGI TLS extension, where
the TLS layer puts them.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

import httpx
import numpy as np
from numpy.typing import NDArray

from aggregator.assembly import (
    Aggregator,
    AssembledShareServer,
    assemble_aggregator,
    assemble_share_server,
)
from aggregator.peers import HttpShareServers
from aggregator.settings import AggregatorSettings, ShareServerSettings
from privacy.canonical import canonical_bytes
from privacy.plan import JobSpec, RoundPlan
from privacy.wire.envelope import Envelope, parse_envelope
from privacy.wire.messages import Refusal, RoundOffer, RoundResult
from privacy.wire.readiness import JobReadiness
from tests.federation import Federation, SharedUpdate

P = ParamSpec("P")


class AsTlsPeer(httpx.ASGITransport):
    """Calls an application as the holder of a certificate (or of none)."""

    def __init__(self, app: Any, der: bytes | None) -> None:
        self.of = (app, der)
        chain = [ssl.DER_cert_to_PEM_cert(der)] if der is not None else []

        async def with_tls(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "extensions": {"tls": {"client_cert_chain": chain}}}, receive, send)

        super().__init__(with_tls, raise_app_exceptions=True)


def client_of(app: Any, der: bytes | None) -> httpx.AsyncClient:
    """A client of one application under one certificate."""
    return httpx.AsyncClient(transport=AsTlsPeer(app, der), base_url="https://server.test", timeout=30)


def content_digest(raw: bytes) -> dict[str, str]:
    """The header a silo sends with a part."""
    digest = hashlib.sha256(raw).digest()
    return {"content-digest": f"sha-256=:{base64.b64encode(digest).decode()}:"}


def submission(update: SharedUpdate, server: str) -> bytes:
    """The body of a manifest for one share server."""
    sealed = update.sealed_seeds.get(server)  # type: ignore[call-overload] # a name is a ServerId here
    text = None if sealed is None else base64.b64encode(sealed).decode()
    return canonical_bytes({"manifest": update.envelope.model_dump(mode="json"), "sealed_seed": text})


async def send_share(clients: dict[str, httpx.AsyncClient], update: SharedUpdate) -> None:
    """What an honest silo does: parts to the first server, then the manifest to each."""
    ctx = update.envelope.context
    first, *others = sorted(clients)
    for index, part in enumerate(update.parts):
        answer = await clients[first].put(
            f"/v1/rounds/{ctx}/parts/{index}", content=part, headers=content_digest(part)
        )
        assert answer.status_code in (200, 201), answer.text
    for server in (first, *others):
        answer = await clients[server].post(f"/v1/rounds/{ctx}/manifests", content=submission(update, server))
        assert answer.status_code in (200, 201), answer.text


@dataclass
class World:
    """Servers on disk under ``root``; ``restart`` builds them anew from there."""

    root: Path
    federation: Federation = field(default_factory=Federation)
    grace_s: float = 0.05
    servers: dict[str, AssembledShareServer] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What a server's settings say besides, by its name."""

    def __post_init__(self) -> None:
        for party in [*self.federation.charter.share_servers, "aggregator"]:
            self.federation.identity(party, self.root / party)
        for server in self.federation.charter.share_servers:
            self.start_server(server)

    def start_server(self, server: str) -> AssembledShareServer:
        """(Re)start one share server from its disk."""
        if server in self.servers:
            self.servers[server].store.close()
        settings = ShareServerSettings(
            state_dir=self.root / server, listen="127.0.0.1:0", **self.settings.get(server, {})
        )
        self.servers[server] = assemble_share_server(settings)
        return self.servers[server]

    def as_party(self, party: str, server: str) -> httpx.AsyncClient:
        """A party's client to one share server."""
        return client_of(self.servers[server].app, self.federation.certificate_der(party))

    def to_servers(self, party: str) -> dict[str, httpx.AsyncClient]:
        """A party's clients to all share servers."""
        return {server: self.as_party(party, server) for server in self.servers}

    def build_aggregator(self, **settings: Any) -> Aggregator:
        """(Re)build the aggregator from its disk, talking to this world's servers."""
        given = {"state_dir": self.root / "aggregator", "listen": "127.0.0.1:0", "grace_s": self.grace_s}
        der = self.federation.certificate_der("aggregator")
        calls = HttpShareServers(
            {server: f"https://{server}.test" for server in self.federation.charter.share_servers},
            ssl.create_default_context(),
            {server: self.to_server(server, der) for server in self.federation.charter.share_servers},
        )
        return assemble_aggregator(AggregatorSettings(**{**given, **settings}), calls)

    def to_server(self, server: str, der: bytes) -> httpx.AsyncBaseTransport:
        """How the aggregator reaches a share server."""
        return _Latest(self, server, der)

    @asynccontextmanager
    async def running(self, aggregator: Aggregator) -> AsyncIterator[Aggregator]:
        """The aggregator with its loop going."""
        work = asyncio.create_task(aggregator.loop.run())
        try:
            yield aggregator
        finally:
            aggregator.state.bell.silence()
            await asyncio.wait_for(work, 10)
            aggregator.state.store.close()


class _Latest(httpx.AsyncBaseTransport):
    """Reaches whichever incarnation of a server runs now."""

    def __init__(self, world: World, server: str, der: bytes) -> None:
        self._world, self._server, self._der = world, server, der

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        app = self._world.servers[self._server].app
        return await AsTlsPeer(app, self._der).handle_async_request(request)


@dataclass
class Silo:
    """A silo without data: it takes part with whatever update it is told to send."""

    world: World
    aggregator: Aggregator
    name: str
    update: NDArray[np.float32] | None = None
    refuses: bool = False
    silent: bool = False
    results: list[RoundResult] = field(default_factory=list)
    sent: list[SharedUpdate] = field(default_factory=list)

    async def run(self) -> None:
        """Poll, take part, wait for the result, until the job has ended."""
        der = self.world.federation.certificate_der(self.name)
        after = ""
        async with client_of(self.aggregator.app, der) as client:
            while True:
                answer = await client.get("/v1/offers", params={"after": after, "wait_s": 5})
                if answer.status_code == 204:
                    continue
                assert answer.status_code == 200, answer.text
                offer = RoundOffer.model_validate_json(parse_envelope(answer.content).body)
                after = offer.plan.context
                await self._answer(client, offer.plan)
                result = await client.get(f"/v1/rounds/{after}/result", params={"wait_s": 60})
                assert result.status_code == 200, result.text
                self.results.append(RoundResult.model_validate_json(parse_envelope(result.content).body))
                if self.results[-1].job_state != "running":
                    return

    async def _answer(self, client: httpx.AsyncClient, plan: RoundPlan) -> None:
        if self.silent:
            return
        if self.refuses:
            envelope = self.world.federation.sign(
                Refusal(
                    silo=self.name,
                    rule="budget.job",
                    sentence="the job's budget is spent",
                    expected="at most 1",
                    got="2",
                    remedy="ask for less",
                ),
                "refusal",
                plan.context,
                self.name,
            )
            await self._post(client, f"/v1/rounds/{plan.context}/refusals", envelope)
            return
        shared = self.world.federation.share(plan, self.name, self.update)
        self.sent.append(shared)
        await send_share(self.world.to_servers(self.name), shared)
        await self._post(client, f"/v1/rounds/{plan.context}/manifests", shared.envelope)

    async def _post(self, client: httpx.AsyncClient, path: str, envelope: Envelope) -> None:
        answer = await client.post(path, content=canonical_bytes(envelope))
        assert answer.status_code == 202, answer.text


async def submit(world: World, aggregator: Aggregator, spec: JobSpec, approved: bool = True) -> None:
    """Upload the zero model and the signed job as the researcher; all silos approve if not told otherwise."""
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        model = world.federation.initial_model(spec.model.parameters)
        answer = await client.put(
            f"/v1/models/{spec.initial_model}",
            params={"architecture": spec.model.architecture},
            content=model,
        )
        assert answer.status_code in (200, 201), answer.text
        answer = await client.post("/v1/jobs", content=canonical_bytes(world.federation.sign_job(spec)))
        assert answer.status_code == 201, answer.text
    if approved:
        await approve(world, aggregator, spec)


async def approve(
    world: World, aggregator: Aggregator, spec: JobSpec, decision: str = "approved", silos: Sequence[str] = ()
) -> None:
    """Have silos (left out: all) say where a job stands; a job that has ended takes no answer."""
    for silo in silos or world.federation.charter.silos:
        said = JobReadiness(silo=silo, job_digest=spec.digest, decision=decision)  # type: ignore[arg-type]  # tests may lie
        envelope = world.federation.sign(said, "readiness", spec.digest, silo)
        async with client_of(aggregator.app, world.federation.certificate_der(silo)) as client:
            path = f"/v1/jobs/{spec.job}/readiness"
            answer = await client.post(path, content=canonical_bytes(envelope))
            assert answer.status_code in (202, 409), answer.text


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on a fresh event loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
