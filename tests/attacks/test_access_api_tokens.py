"""API tokens that are over, stretched, guessed or leaked, and where the secrets of people must never show."""

from __future__ import annotations

import io
import json
import logging
import secrets
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aggregator.assembly import Aggregator
from aggregator.logs import JsonLines, without_tokens
from aggregator.operators.api_tokens import ApiTokens, TokenRequest
from aggregator.operators.operator import Operator, Pseudonyms
from privacy.canonical import canonical_bytes
from privacy.errors import SignatureRejected
from tests.access_world import AccessWorld, group
from tests.aggregator_world import on_loop


@on_loop
async def test_a_revoked_token_opens_nothing_from_the_next_call_on(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    token = await world.api_token(app, "auditor", ("jobs",))
    name = token.split("_")[1]
    async with (
        world.client(app, token=token) as client,
        world.client(app, world.certificate("security")) as officer,
        world.client(app, world.certificate("auditor")) as auditor,
    ):
        assert (await client.get("/v1/whoami")).status_code == 200
        assert (await auditor.delete(f"/v1/tokens/{name}")).status_code == 403
        assert (await officer.delete(f"/v1/tokens/{name}")).status_code == 204
        answer = await client.get("/v1/whoami")
        assert (answer.status_code, "neither over nor revoked" in answer.text) == (401, True)
        assert (await officer.delete(f"/v1/tokens/{name}")).status_code == 204
        assert (await officer.delete("/v1/tokens/000000000000")).status_code == 404


def test_a_token_ends_at_its_second(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    tokens = ApiTokens(
        AccessWorld(tmp_path).aggregator().state.store, Pseudonyms(b"k" * 32), 90, lambda: clock[0]
    )
    admin = Operator("operator:eve", "0" * 32, "eve", frozenset({"site_admin"}), "certificate")
    wanted = TokenRequest(role="auditor", scopes=("jobs",), days=1, label="x")
    issued = tokens.issue(wanted, admin)
    clock[0] += 86_399
    assert tokens.judge(issued.text).roles == {"auditor"}
    clock[0] += 1
    with pytest.raises(SignatureRejected, match="neither over nor revoked"):
        tokens.judge(issued.text)
    assert issued.text not in repr(issued)


@pytest.mark.parametrize(
    "asked",
    [
        {"days": 91},
        {"days": 0},
        {"days": 10**9},
        {"scopes": ["tokens"]},
        {"scopes": ["jobs", "tokens"]},
        {"scopes": ["*"]},
        {"scopes": []},
        {"role": "root"},
        {"label": ""},
        {"label": "two\nlines"},
        {"issued_by": "somebody else"},
    ],
    ids=str,
)
@on_loop
async def test_no_token_is_issued_for_longer_or_for_more_than_tokens_may_have(
    tmp_path: Path, asked: dict[str, object]
) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    wanted = {"role": "auditor", "scopes": ["jobs"], "days": 7, "label": "x"} | asked
    async with world.client(app, world.certificate("site_admin")) as admin:
        answer = await admin.post("/v1/tokens", content=canonical_bytes(wanted))
        assert answer.status_code in (400, 422), answer.text
        assert (await admin.get("/v1/tokens")).json() == {"tokens": []}


@on_loop
async def test_a_leaked_admin_token_cannot_have_itself_succeeded(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    token = await world.api_token(app, "site_admin", ("operators", "charter"))
    wanted = {"role": "auditor", "scopes": ["jobs"], "days": 7, "label": "x"}
    async with world.client(app, token=token) as client:
        assert (await client.get("/v1/tokens")).status_code == 200
        answer = await client.post("/v1/tokens", content=canonical_bytes(wanted))
        assert answer.status_code == 403
        assert "takes the scope tokens" in answer.json()["detail"]
        assert (await client.delete(f"/v1/tokens/{token.split('_')[1]}")).status_code == 403


@on_loop
async def test_a_token_is_all_of_its_characters_and_of_one_server(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app, other = world.aggregator().app, world.share_server().app
    token = await world.api_token(app, "auditor", ("jobs",))
    prefix, name, secret = token.split("_")
    wrong = [
        f"{prefix}_{name}_{'0' * 64}",
        f"{prefix}_{name}_{secret[:-1]}",
        f"{prefix}_{name}_{secret}0",
        f"{prefix}_{name}_{secret.upper()}",
        f"{prefix}_{'0' * 12}_{secret}",
        f"{prefix}_{name}_",
        secret,
    ]
    for text in wrong:
        async with world.client(app, token=text) as client:
            assert (await client.get("/v1/whoami")).status_code == 401, text
    async with world.client(other, token=token) as client:
        assert (await client.get("/v1/whoami")).status_code == 401


@on_loop
async def test_the_database_holds_no_token_and_lists_show_none(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    aggregator = world.aggregator()
    token = await world.api_token(aggregator.app, "auditor", ("jobs",))
    secret = token.split("_")[2]
    async with (
        world.client(aggregator.app, token=token) as client,
        world.client(aggregator.app, world.certificate("site_admin")) as admin,
    ):
        await client.get("/v1/whoami")
        listed = await admin.get("/v1/tokens")
    assert secret not in listed.text
    assert listed.json()["tokens"][0]["used_at"] is not None
    with sqlite3.connect(tmp_path / "aggregator" / "server.db") as database:
        digests = [row[0] for row in database.execute("SELECT digest FROM api_tokens")]
        assert secret not in "\n".join(database.iterdump())
    database.close()
    assert len(digests) == 1


@on_loop
async def test_a_refusal_of_a_person_is_logged_under_her_pseudonym_and_never_with_her_token(
    tmp_path: Path,
) -> None:
    world = AccessWorld(tmp_path)
    aggregator = world.aggregator()
    by_issuer = world.issuer.token(sub="ada@hospital.test", groups=[group("auditor")])
    by_server = await world.api_token(aggregator.app, "auditor", ("jobs",))
    asked: list[tuple[str, str]] = []
    for token in (by_issuer, by_server):
        async with world.client(aggregator.app, token=token) as client:
            who = (await client.get("/v1/whoami")).json()["pseudonym"]
            answer = await client.post("/v1/jobs")
            assert answer.status_code == 403
            asked.append((who, answer.headers["x-request-id"]))
            answer = await client.get(f"/v1/jobs/{token}/he-key")  # who pastes it where it does not belong
            assert answer.status_code == 403
            asked.append((who, answer.headers["x-request-id"]))
    entries = log_of(aggregator)
    refused = [entry for entry in entries if entry["kind"] == "request_refused"]
    assert [(entry["body"]["person"], entry["body"]["request_id"]) for entry in refused] == asked
    assert {entry["body"]["path"] for entry in refused} == {"/v1/jobs", "/v1/jobs/[token]/he-key"}
    text = json.dumps(entries)
    for secret in ("ada", by_issuer, by_server, by_server.split("_")[2]):
        assert secret not in text


@on_loop
async def test_whoever_still_uses_an_ended_token_or_anothers_certificate_is_logged(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    aggregator = world.aggregator()
    token = await world.api_token(aggregator.app, "auditor", ("jobs",))
    silo = world.world.federation.certificate_der("silo-1")
    async with (
        world.client(aggregator.app, token=token) as client,
        world.client(aggregator.app, silo, token) as borrowed,
        world.client(aggregator.app, world.certificate("site_admin")) as admin,
    ):
        who = (await client.get("/v1/whoami")).json()["pseudonym"]
        assert (await borrowed.get("/v1/charter")).status_code == 403
        await admin.delete(f"/v1/tokens/{token.split('_')[1]}")
        assert (await client.get("/v1/charter")).status_code == 401
    refused = [entry["body"] for entry in log_of(aggregator) if entry["kind"] == "request_refused"]
    assert [(entry["person"], entry["status"]) for entry in refused] == [(who, 403), (who, 401)]


@on_loop
async def test_strangers_do_not_make_the_log_grow(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    aggregator = world.aggregator()
    before = len(log_of(aggregator))
    for token in ("x.y.z", "sealsum_000000000000_" + "0" * 64, world.issuer.token(aud="other")):
        async with world.client(aggregator.app, token=token) as client:
            assert (await client.get("/v1/charter")).status_code == 401
    assert len(log_of(aggregator)) == before


def log_of(aggregator: Aggregator) -> list[dict[str, Any]]:
    """The server's log: kinds, and fields without their salts."""
    store = aggregator.state.store
    with store.read() as view:
        records = [json.loads(line) for line in store.log.lines(view.connection)]
    return [
        {"kind": record["kind"], "body": {name: one["value"] for name, one in record["fields"].items()}}
        for record in records
    ]


def test_no_token_gets_through_the_log_formatter() -> None:
    api_token = f"sealsum_{secrets.token_hex(6)}_{secrets.token_hex(32)}"
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2ln-bmF0_dXJl"
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    record = logging.makeLogRecord({"msg": f"got {api_token}", "path": f"/v1/{jwt}", "levelname": "INFO"})
    handler.handle(record)
    line = stream.getvalue()
    assert json.loads(line)["path"] == "/v1/[token]"
    assert api_token not in line
    assert "eyJ" not in line
    assert without_tokens("sealsum aggregator") == "sealsum aggregator"


def test_a_pseudonym_is_not_found_by_guessing_the_subject() -> None:
    one, other = Pseudonyms(b"1" * 32), Pseudonyms(b"2" * 32)
    assert one.of("ada") == one.of("ada")
    assert one.of("ada") != other.of("ada")
    assert one.of("ada") != one.of("bob")
