"""Bytes that would unpack to more than they are, or run: taken as bytes, bounded, refused."""

from __future__ import annotations

import ast
import gzip
import pickle
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from aggregator.peers import HttpShareServers
from privacy.errors import MalformedMessage
from privacy.ids import Context, Digest, PartyId, ServerId
from privacy.keystore import Identity
from silo_agent.transport import FederationClient
from tests.aggregator_world import World, client_of, content_digest, on_loop
from tests.faults import ran

ROOT = Path(__file__).parents[2]
PACKAGES = ("privacy", "policies", "silo_agent", "aggregator", "sealsum", "auditor")
RUNS_CODE = re.compile(r"\b(pickle|dill|cloudpickle|joblib|marshal|shelve|torch\.load|eval|exec)\b")


class _Packed(httpx.SyncByteStream):
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __iter__(self) -> Iterator[bytes]:
        yield self._raw


class _TlsOnly:
    client_context = ssl.create_default_context()


@pytest.mark.parametrize("layers", [1, 2])
def test_an_answer_that_unpacks_beyond_its_limit_is_cut_off(layers: int) -> None:
    """Two layers of gzip make a gigabyte of a kilobyte, before any limit on what comes out can count it."""
    body = bytes(1 << 20)
    for _ in range(layers):
        body = gzip.compress(body)
    headers = {"Content-Encoding": ", ".join(["gzip"] * layers)}

    def bomb(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, stream=_Packed(body), headers=headers)

    client = FederationClient(
        cast(Identity, _TlsOnly()), "https://a.test", transport=httpx.MockTransport(bomb)
    )
    with pytest.raises(MalformedMessage, match="expected a body as it is, got one in gzip"):
        client.get_bytes("/v1/models/x", limit=1 << 30)


@on_loop
async def test_a_share_server_that_packs_its_answer_is_refused() -> None:
    def bomb(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        headers = {"Content-Encoding": "gzip, gzip"}
        return httpx.Response(200, content=gzip.compress(gzip.compress(bytes(1 << 20))), headers=headers)

    server = ServerId(PartyId("server-0"))
    calls = HttpShareServers(
        {server: "https://server-0.test"},
        ssl.create_default_context(),
        {server: httpx.MockTransport(bomb)},
    )
    with pytest.raises(MalformedMessage, match="got it packed"):
        await calls.opening_part(server, Context(Digest("0" * 64)), 0)
    await calls.aclose()


@on_loop
async def test_a_packed_body_is_taken_for_the_bytes_it_is_and_never_unpacked(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec()
    packed = gzip.compress(world.federation.initial_model())
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        answer = await client.put(
            f"/v1/models/{spec.initial_model}",
            params={"architecture": spec.model.architecture},
            content=packed,
            headers={"Content-Encoding": "gzip"},
        )
    assert 400 <= answer.status_code < 500, answer.text
    aggregator.state.store.close()


@on_loop
async def test_a_pickle_in_any_place_of_bytes_runs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    aggregator = world.build_aggregator()
    spec = world.federation.job_spec()
    raw = pickle.dumps(ran.Tells())
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        model = await client.put(
            f"/v1/models/{spec.initial_model}", params={"architecture": spec.model.architecture}, content=raw
        )
        job = await client.post("/v1/jobs", content=raw)
    async with world.as_party("silo-1", "server-0") as client:
        part = await client.put(f"/v1/rounds/{'0' * 64}/parts/0", content=raw, headers=content_digest(raw))
        manifest = await client.post(f"/v1/rounds/{'0' * 64}/manifests", content=raw)
    for answer in (model, job, part, manifest):
        assert 400 <= answer.status_code < 500, answer.text
    assert ran.TIMES == []
    pickle.loads(raw)  # noqa: S301 - our own: so the pickle does run something where it is read
    assert ran.TIMES == [1]
    aggregator.state.store.close()


def test_no_module_loads_what_can_run() -> None:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    texts = {path: path.read_text("utf-8") for path in paths}
    assert len(texts) > 300
    named = {path: text for path, text in texts.items() if RUNS_CODE.search(text)}
    found = [f"{path.relative_to(ROOT)}: {line}" for path, text in named.items() for line in _loads(text)]
    assert found == []


def _loads(source: str) -> list[str]:
    """Imports and calls in a module by which bytes become code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [said for said in [ast.unparse(node)] if RUNS_CODE.search(said)]
        elif isinstance(node, ast.Call):
            found += [said for said in [ast.unparse(node.func)] if said in ("torch.load", "eval", "exec")]
    return found
