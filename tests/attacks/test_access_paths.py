"""Another spelling of a path, or another method, is not another way in."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from fastapi import FastAPI

from aggregator.access import AGGREGATOR
from aggregator.job_rows import add_model
from privacy.canonical import sha256_hex
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import Digest
from tests.access_world import AccessWorld, group
from tests.aggregator_world import on_loop
from tests.authority import CertificateAuthority
from tests.federation import demo_policy_text

SPELLINGS = [
    "//v1/tokens",
    "/v1//tokens",
    "/v1/tokens/",
    "/v1/tokens//",
    "/V1/tokens",
    "/v1/./tokens",
    "/livez/../v1/tokens",
    "/v1/login/../tokens",
    "/v1/login/%2e%2e/tokens",
    "/livez%2f..%2fv1%2ftokens",
    "/v1/%74okens",
    "/v1/tokens%2f",
    "/v1/tokens%00",
    "/v1/tokens;x=/livez",
    "/livez/v1/tokens",
    "/v1/login/tokens",
]


async def called(app: FastAPI, method: str, raw: str, der: bytes | None) -> int:
    """The status of a request whose path reaches the application as it stands on the wire."""
    sent: list[MutableMapping[str, Any]] = []
    chain = [] if der is None else [ssl.DER_cert_to_PEM_cert(der)]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": unquote(raw),  # as uvicorn does
        "raw_path": raw.encode(),
        "query_string": b"",
        "headers": [(b"host", b"server.test")],
        "extensions": {"tls": {"client_cert_chain": chain}},
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize("path", SPELLINGS)
@on_loop
async def test_no_spelling_of_a_path_lets_in_who_may_not_come(tmp_path: Path, path: str) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    for method in ("GET", "POST", "DELETE"):
        assert await called(app, method, path, None) == 401, method
        assert await called(app, method, path, world.certificate("researcher")) in (403, 404, 405), method


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND"])
@on_loop
async def test_no_other_method_does_what_a_row_is_for(tmp_path: Path, method: str) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    async with world.client(app) as stranger, world.client(app, world.certificate("site_admin")) as admin:
        for path in ("/v1/tokens", "/v1/charter", "/v1/jobs"):
            assert (await stranger.request(method, path)).status_code == 401
            answer = await admin.request(method, path)
            assert answer.status_code == 405, (method, path)
            assert "token" not in answer.text


@on_loop
async def test_open_paths_are_open_to_their_method_alone(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    async with world.client(world.aggregator().app) as stranger:
        for path in ("/livez", "/readyz", "/v1/login"):
            assert AGGREGATOR["GET", path].anyone
            for method in ("HEAD", "OPTIONS", "POST", "PUT", "DELETE"):
                assert (await stranger.request(method, path)).status_code == 405


@on_loop
async def test_the_rows_of_machines_take_no_bearer_token_whatever_its_groups(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    every = [group(role) for role in world.keys]
    async with world.client(app, token=world.issuer.token(groups=every)) as client:
        for path in ("/v1/offers", "/v1/rounds/" + "0" * 64 + "/next", "/v1/ledger-heads"):
            answer = await client.get(path)
            assert (answer.status_code, "for members of the charter" in answer.text) == (403, True), path


@on_loop
async def test_a_model_goes_to_a_person_only_as_the_threat_model_lets_researchers_have_it(
    tmp_path: Path,
) -> None:
    to_silos = demo_policy_text().replace("model: {to: researchers,", "model: {to: silos,")
    world = AccessWorld(tmp_path, policy_text=to_silos)
    key = SigningKey.generate()
    world.register("nora", roles=("researcher",), verify_key=key.verify_key, legal_entity="Hospital 1")
    aggregator = world.aggregator()
    raw = world.world.federation.initial_model(3)
    digest = sha256_hex(raw)
    with aggregator.state.store.write() as transaction:
        add_model(transaction, digest, Digest("0" * 64), len(raw), published=True)
    aggregator.state.models.path(digest).parent.mkdir(exist_ok=True)
    aggregator.state.models.path(digest).write_bytes(raw)
    nora = world.world.federation.certificate_der("nora", key)
    for der in (world.certificate("researcher"), nora):
        async with world.client(aggregator.app, der) as person:
            answer = await person.get(f"/v1/models/{digest}")
            assert (answer.status_code, answer.json()["type"]) == (422, "urn:sealsum:policy-refusal")
            rules = {finding["rule"] for finding in answer.json()["findings"]}
            assert rules == ({"model_not_yet"} if der == nora else {"model_recipient", "model_not_yet"})


def test_a_person_is_not_registered_with_a_members_key(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    silo = world.world.federation.key("silo-1").verify_key
    world.register("mallory", roles=("site_admin",), verify_key=silo)
    with pytest.raises(ConfigurationError, match=r"mallory\.verify_key: it is the key of member silo-1"):
        world.aggregator()


def test_the_key_of_pseudonyms_is_its_owners_alone(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    world.aggregator()
    path = tmp_path / "aggregator" / "pseudonym.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.chmod(path, 0o640)
    with pytest.raises(ConfigurationError, match="expected mode 0600 or tighter"):
        world.aggregator()


@on_loop
async def test_an_operators_ca_vouches_for_operators_and_for_no_member(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    hospital = CertificateAuthority("hospital")
    (tmp_path / "operators-ca.pem").write_bytes(hospital.certificate.public_bytes(Encoding.PEM))
    world.operators_ca = tmp_path / "operators-ca.pem"
    app = world.aggregator().app
    silo = world.world.federation.key("silo-1")

    def of_hospital(key: SigningKey) -> bytes:
        return hospital.leaf("anybody", key.private.public_key()).public_bytes(Encoding.DER)

    for der, status in (
        (of_hospital(world.keys["auditor"]), 200),
        (world.world.federation.certificate_der("silo-1"), 200),
        (of_hospital(silo), 401),
    ):
        async with world.client(app, der) as client:
            answer = await client.get("/v1/whoami")
            assert answer.status_code == status, answer.text
    assert "issued by the federation's CA alone" in answer.json()["detail"]
