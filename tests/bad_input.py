"""Servers with a round in the air, and requests to them that no honest party would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from fastapi import FastAPI
from hypothesis import strategies as st
from pydantic import RootModel
from schemathesis import GenerationMode

from aggregator.access import AGGREGATOR, REGISTRAR, SHARE_SERVER, Access, Endpoint, Table
from aggregator.enrolment.web import registrar_app
from privacy.canonical import canonical_bytes
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import Refusal, RoundOffer
from privacy.wire.readiness import JobReadiness
from tests.access_world import AccessWorld
from tests.aggregator_world import AsTlsPeer, client_of, content_digest, submission, submit
from tests.enrolment import NOW, Applicant, found, guest, invited, registrar_of
from tests.federation import Federation

TABLES: dict[str, Table] = {"aggregator": AGGREGATOR, "share_server": SHARE_SERVER, "registrar": REGISTRAR}
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        (0, -1, 2**31, 2**53 - 1, "", "\x00", "\ud7ff", "e\u0301", "0" * 64, "NaN", "1e999", "-inf")
    ),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
JSON: st.SearchStrategy[Any] = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
WORDS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)


@dataclass(frozen=True)
class Sent:
    """One request."""

    method: str
    url: str
    params: dict[str, Any]
    headers: dict[str, str]
    content: bytes


@st.composite
def altered(draw: st.DrawFn, whole: Any) -> Any:
    """A JSON value with one thing in it replaced, or left out."""
    if not isinstance(whole, dict | list) or not whole or draw(st.integers(0, 9)) == 0:
        return draw(JSON)
    if isinstance(whole, list):
        place = draw(st.integers(0, len(whole) - 1))
        return [*whole[:place], draw(altered(whole[place])), *whole[place + 1 :]]
    name = draw(st.sampled_from(sorted(whole)))
    if draw(st.integers(0, 9)) == 0:
        return {key: value for key, value in whole.items() if key != name}
    return {**whole, name: draw(altered(whole[name]))}


@dataclass(repr=False)
class BadInputWorld:
    """An aggregator, a share server and a registrar in memory; a round of theirs waits for updates."""

    root: Path
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)

    def __post_init__(self) -> None:
        self.access = AccessWorld(self.root / "federation")
        self.authority = found(self.root / "founded")
        self.schemas: dict[str, Any] = {}
        self.clients: dict[tuple[str, str], httpx.AsyncClient] = {}
        self.runner.run(self._open_a_round())
        registrar = registrar_app(self.authority, registrar_of(self.authority), lambda: NOW)
        share_server = self.access.world.servers["server-0"].app
        self.apps: dict[str, FastAPI] = {
            "aggregator": self.aggregator.app,
            "share_server": share_server,
            "registrar": registrar,
        }
        for server, app in self.apps.items():
            self.schemas[server] = schemathesis.openapi.from_dict(app.openapi())

    @property
    def federation(self) -> Federation:
        """The members and their keys."""
        return self.access.world.federation

    async def _open_a_round(self) -> None:
        self.access.share_server()
        world = self.access.world
        self.aggregator = world.build_aggregator(**self.access.people)
        self.work = asyncio.create_task(self.aggregator.loop.run())
        self.spec = self.federation.job_spec(round_deadline_s=3600)
        await submit(world, self.aggregator, self.spec)
        offers = await asyncio.gather(*(self._offer_to(silo) for silo in self.federation.charter.silos))
        self.plan = offers[0].plan

    async def _offer_to(self, silo: str) -> RoundOffer:
        async with client_of(self.aggregator.app, self.federation.certificate_der(silo)) as client:
            while True:
                answer = await client.get("/v1/offers", params={"after": "", "wait_s": 5})
                if answer.status_code == 200:
                    return RoundOffer.model_validate_json(parse_envelope(answer.content).body)

    def close(self) -> None:
        """Let go of the disk and the loop."""
        for client in self.clients.values():
            self.runner.run(client.aclose())
        self.runner.run(self._stop())
        self.aggregator.state.store.close()
        for server in self.access.world.servers.values():
            server.store.close()
        self.runner.close()

    async def _stop(self) -> None:
        self.aggregator.state.bell.silence()
        await asyncio.wait_for(self.work, 10)  # and raises what ended it, if anything did

    def may_call(self, row: Access) -> list[str]:
        """Somebody of each role that the table lets in, or a stranger where it lets in everybody."""
        of_role = {
            "silo": "silo-1",
            "aggregator": "aggregator",
            "share_server": "server-1",
            "researcher": "researcher",
        }
        return [""] if row.anyone else sorted([of_role[role] for role in row.members] + list(row.people))

    def send(self, server: str, who: str, sent: Sent) -> httpx.Response:
        """Call as a member, as a person of a role, or as nobody; what the server raises is raised here."""
        client = self.clients.get((server, who))
        if client is None:
            members = {member.id for member in self.federation.charter.members}
            der = None
            if who in members:
                der = self.federation.certificate_der(who)
            elif who:
                der = self.access.certificate(who)  # type: ignore[arg-type]  # roles of the table
            transport = AsTlsPeer(self.apps[server], der)
            client = httpx.AsyncClient(transport=transport, base_url="https://server.test", timeout=60)
            self.clients[server, who] = client
        request = client.build_request(
            sent.method,
            sent.url,
            params=sent.params,
            headers={name: value.encode("latin-1") for name, value in sent.headers.items()},  # type: ignore[misc]
            content=sent.content,
        )
        return self.runner.run(client.send(request))

    def requests(self, server: str, endpoint: Endpoint, who: str) -> st.SearchStrategy[Sent]:
        """What schemathesis makes of the endpoint's schema, right or wrong, on real and on invented paths."""
        method, path = endpoint
        operation = self.schemas[server][path][method]
        known = {
            "ctx": self.plan.context,
            "job": self.spec.job,
            "digest": self.spec.initial_model,
            "silo": "silo-1",
            "of": "server-0",
            "step": "manifest",
            "name": "update",
            "index": 0,
            "over": "shares",
        }
        of_path = {name: value for name, value in known.items() if f"{{{name}}}" in path}
        made = [operation.as_strategy(mode) for mode in GenerationMode]
        if of_path:
            made += [operation.as_strategy(GenerationMode.POSITIVE, path_parameters=of_path)] * 2
        bodies = self.bodies(who) if method in ("POST", "PUT") else st.just(b"")
        return st.builds(_sent, st.one_of(made), bodies, _headers(), st.booleans())

    def bodies(self, who: str) -> st.SearchStrategy[bytes]:
        """Noise, JSON, and honest messages with one thing altered, signed by the caller all the same."""
        federation, context = self.federation, self.plan.context
        member = who if who in federation.parties else "silo-1"
        share = federation.share(self.plan, "silo-1")
        refusal = Refusal(silo="silo-1", rule="r", sentence="s", expected="e", got="g", remedy="m")
        ready = JobReadiness(silo="silo-1", job_digest=self.spec.digest, decision="approved")
        applicant = Applicant.of(invited(self.authority, guest("silo-9"), replace=True)).request
        messages: list[tuple[str, str, Any]] = [
            ("manifest", context, json.loads(share.envelope.body)),
            ("refusal", context, refusal.model_dump(mode="json")),
            ("readiness", self.spec.digest, ready.model_dump(mode="json")),
            ("job", federation.charter.digest, self.spec.model_dump(mode="json")),
        ]

        def envelope(message: tuple[str, str, Any]) -> Any:
            kind, bound_to, body = message
            signed = federation.sign(RootModel[Any](body), kind, bound_to, member)  # type: ignore[arg-type]
            return signed.model_dump(mode="json")

        signed = st.one_of(
            [st.tuples(st.just(kind), st.just(to), altered(body)) for kind, to, body in messages]
        ).map(envelope)
        documents = st.one_of(
            JSON,
            signed,
            st.lists(signed, max_size=2),
            signed.flatmap(altered),
            altered(json.loads(submission(share, "server-0"))),
            altered(self.aggregator.state.held.endorsed.model_dump(mode="json")),
            altered(applicant.model_dump(mode="json")),
            altered({"role": "auditor", "scopes": ["logs"], "days": 1, "label": "x"}),
        )
        deep = st.sampled_from((b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5_000, b'"\\ud800"', b"\xff\xfe"))
        return st.one_of(
            documents.map(canonical_bytes_or_noise),
            st.binary(max_size=64),
            deep,
            st.sampled_from(share.parts),
        )


def canonical_bytes_or_noise(value: Any) -> bytes:
    """Canonical JSON where there is one."""
    try:
        return canonical_bytes(RootModel[Any](value))
    except ValueError:
        return json.dumps(value).encode()


def _headers() -> st.SearchStrategy[dict[str, str]]:
    names = ("content-digest", "x-request-id", "authorization", "x-sealsum-instance", "content-type", "range")
    digests = WORDS.map(lambda text: f"sha-256=:{text}:")
    return st.dictionaries(st.sampled_from(names), WORDS | digests, max_size=2)


def _sent(case: Any, body: bytes, headers: dict[str, str], true_digest: bool) -> Sent:
    told = case.as_transport_kwargs(base_url="https://server.test")
    digest = content_digest(body) if true_digest else {}
    params = {name: value for name, value in (told["params"] or {}).items() if name != "wait_s"}
    return Sent(told["method"], told["url"], params, headers | digest, body)


@st.composite
def drawn(draw: st.DrawFn, strategy: Callable[[], st.SearchStrategy[Any]]) -> Any:
    """From a strategy whose own repr would be pages long, which hypothesis writes and warns of."""
    return draw(strategy())
